use super::*;
use crate::fatbin::FatbinError;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Fast, and no worse for what is tested here.
const TEST_LEVEL: i32 = 3;

fn item(op: &str, name: &str, target: &str, bytes: Vec<u8>) -> Item {
    let target: Target = target.parse().unwrap();
    let source_key = Digest::of(format!("{op} {name}").as_bytes());
    Item {
        spec: SpecDetails {
            op: op.to_owned(),
            uri: format!("{op}-{name}"),
            source_key,
            spec_id: Digest::of(name.as_bytes()),
            axes: vec![("name".to_owned(), name.to_owned())],
            tactic: vec![("block".to_owned(), 256)],
            snippet: None,
            entry: "sample".to_owned(),
            params: Some(Digest::of(op.as_bytes())),
            options: BTreeMap::new(),
            images: Vec::new(),
        },
        image: ImageDetails {
            target,
            toolkit: (target != Target::Host).then_some(Toolkit { major: 13, minor: 0 }),
            toolchain: if target == Target::Host { "host".to_owned() } else { "nvrtc".to_owned() },
            build_key: Digest::of(format!("{op} {name} {target}").as_bytes()),
            size: 0,
            resources: None,
        },
        bytes,
    }
}

fn gpu(op: &str, name: &str, arch: &str) -> Item {
    item(op, name, arch, sample(&format!("13.0-{arch}.fatbin")))
}

fn host(op: &str, name: &str, bytes: &[u8]) -> Item {
    item(op, name, "host", bytes.to_vec())
}

fn base() -> Details {
    Details { library: "0.1.0".to_owned(), launch_abi: 1, ..Details::default() }
}

fn pack(items: &[Item]) -> Vec<u8> {
    let mut writer = BundleWriter::new(base(), TEST_LEVEL);
    items.iter().for_each(|item| writer.push(item.clone()).unwrap());
    writer.finish().unwrap()
}

fn open(bytes: &[u8]) -> Result<Bundle, BundleError> {
    Bundle::open(bytes.to_vec())
}

/// Opens and verifies.
fn verified(bytes: &[u8]) -> Result<Summary, Vec<BundleError>> {
    open(bytes).map_err(|e| vec![e])?.verify()
}

fn mixed() -> Vec<Item> {
    vec![
        gpu("norm", "a", "90a"),
        gpu("norm", "a", "100f"),
        gpu("norm", "b", "90a"),
        host("norm", "a", b"the first shared object"),
        host("norm", "b", b"another shared object"),
        host("page", "a", &[7; 5000]),
        item("page", "a", "compute_80", sample("13.0-ptx.fatbin")),
    ]
}

/// Writes the hashes of index and header anew, as a forger would.
fn reseal(bytes: &mut [u8]) {
    let index_end = (long(bytes, 40) as usize).saturating_add(HEADER_BYTES);
    if index_end <= bytes.len() {
        let index = Digest::of(&bytes[HEADER_BYTES..index_end]);
        bytes[48..80].copy_from_slice(&index.0);
    }
    let sum = Digest::of(&bytes[..RESERVED.end]);
    bytes[RESERVED.end..HEADER_BYTES].copy_from_slice(&sum.0);
}

#[test]
fn target_numbers_are_ordered_as_targets() {
    let mut targets = vec![Target::Host];
    for facts in crate::target::ARCHS {
        for suffix in [Suffix::Baseline, Suffix::Family, Suffix::Specific] {
            targets.push(Target::Sm(facts.arch, suffix));
            targets.push(Target::Compute(facts.arch, suffix));
        }
    }
    targets.sort();
    let codes: Vec<u32> = targets.iter().map(|&t| encode_target(t)).collect();
    assert!(codes.is_sorted_by(|a, b| a < b));
    assert!(targets.iter().zip(&codes).all(|(&t, &c)| decode_target(c) == Some(t)));
    for bad in [1, 0x100, 0x0100_0000, 0x0100_5a03, 0x0300_5a00] {
        assert_eq!(decode_target(bad), None);
    }
}

#[test]
fn what_goes_in_comes_out() {
    let items = mixed();
    let bytes = pack(&items);
    let bundle = open(&bytes).unwrap();
    assert_eq!(bundle.entries().len(), items.len());
    for item in &items {
        let entry = bundle.find(item.spec.source_key, item.image.target).unwrap();
        assert_eq!(bundle.image(entry).unwrap(), item.bytes);
        assert_eq!((entry.build_key, entry.toolkit), (item.image.build_key, item.image.toolkit));
        assert_eq!(entry.judged().target, item.image.target);
    }
    assert!(bundle.find(Digest::default(), Target::Host).is_none());
    assert!(bundle.find(items[0].spec.source_key, "sm_80".parse().unwrap()).is_none());
    let targets = bundle.targets_of(items[0].spec.source_key).map(|e| e.target.to_string());
    assert_eq!(targets.collect::<Vec<_>>(), ["host", "sm_90a", "sm_100f"]);
    assert_eq!(bundle.targets_of(Digest::default()).count(), 0);

    let details = bundle.details().unwrap();
    assert_eq!(details.specs.iter().map(|s| s.uri.as_str()).collect::<Vec<_>>(), ["norm-a", "norm-b", "page-a"]);
    assert_eq!(details.toolchains, ["host", "nvrtc"]);
    let registers = details.specs[0].images[1].resources.map(|r| r.registers > 0);
    assert_eq!(registers, Some(true), "taken from the cubin");

    let summary = bundle.verify().unwrap();
    assert_eq!((summary.specs, summary.images, summary.frames), (3, 7, 5));
    assert_eq!(summary.raw_bytes, items.iter().map(|i| i.bytes.len() as u64).sum::<u64>());
    assert_eq!(summary.targets.len(), 4);
    assert_eq!(bundle.signed_bytes().unwrap(), bytes[..HEADER_BYTES + long(&bytes, 40) as usize]);
}

#[test]
fn version_and_launch_abi_are_told_by_the_header_alone() {
    let mut bytes = pack(&mixed());
    let details = long(&bytes, 80) as usize;
    bytes[details] ^= 1;
    let bundle = open(&bytes).unwrap();
    assert_eq!((bundle.library(), bundle.launch_abi()), ("0.1.0", 1));
    assert!(bundle.details().is_err());
    let finish = |library: &str| {
        BundleWriter::new(Details { library: library.to_owned(), ..Details::default() }, TEST_LEVEL).finish()
    };
    let longest = "1".repeat(LIBRARY_BYTES);
    assert_eq!(open(&finish(&longest).unwrap()).unwrap().library(), longest);
    assert_eq!(open(&finish("").unwrap()).unwrap().library(), "");
    for bad in ["1".repeat(LIBRARY_BYTES + 1), "1 0".into(), "é".into(), "1\0".into()] {
        assert_eq!(finish(&bad).unwrap_err().code(), "PB-1329", "{bad:?}");
    }
}

#[test]
fn a_file_and_a_static_slice_are_read_as_well() {
    let bytes = pack(&mixed());
    let path = std::env::temp_dir().join(format!("parbake-model-{}.pbk", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    let file = Bundle::open(std::fs::File::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let embedded: &'static [u8] = bytes.leak();
    assert_eq!(file.unwrap().verify().unwrap(), Bundle::open(embedded).unwrap().verify().unwrap());
}

#[test]
fn an_empty_bundle_is_a_bundle() {
    let summary = verified(&pack(&[])).unwrap();
    assert_eq!((summary.images, summary.frames, summary.raw_bytes), (0, 0, 0));
}

#[test]
fn the_bytes_depend_on_the_set_of_items_only() {
    let mut items = mixed();
    for i in 0..40u32 {
        items.push(host(["norm", "page", "rope"][i as usize % 3], &format!("n{i}"), &i.to_le_bytes().repeat(50)));
    }
    let expected = pack(&items);
    for round in 1..8usize {
        items.rotate_left(round * 5);
        items[..20].reverse();
        let mut base = base();
        base.targets = ["sm_100f", "host", "host"].map(|t| t.parse().unwrap()).to_vec();
        let mut writer = BundleWriter::new(base, TEST_LEVEL).jobs(round);
        items.iter().for_each(|item| writer.push(item.clone()).unwrap());
        assert!(writer.finish().unwrap() == expected, "round {round}");
    }
}

#[test]
fn what_was_packed_before_gives_the_same_bytes() {
    let mut items = mixed();
    items.extend((0..9u32).map(|i| host("norm", &format!("n{i}"), &i.to_le_bytes().repeat(500_000))));
    let expected = pack(&items);
    let unit = |item: &Item| Unit { spec: item.spec.clone(), image: item.image.clone() };
    items.sort_by(|a, b| unit(a).order().cmp(&unit(b).order()));
    let mut writer = BundleWriter::new(base(), TEST_LEVEL);
    for group in items.chunk_by(|a, b| (&a.spec.op, a.image.target) == (&b.spec.op, b.image.target)) {
        let units: Vec<Unit> = group.iter().map(unit).collect();
        let packed = Packed::of(group, TEST_LEVEL).unwrap();
        let bytes = packed.to_bytes();
        assert_eq!(Packed::from_bytes(&bytes).as_ref(), Some(&packed));
        for at in [0, 9, bytes.len() / 2, bytes.len() - 1] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Packed::from_bytes(&other), None);
            assert_eq!(Packed::from_bytes(&bytes[..at]), None);
        }
        let digests: Vec<Digest> = group.iter().map(|item| Digest::of(&item.bytes)).collect();
        let key = Packed::key(&units, &digests, "a packer", TEST_LEVEL);
        assert_ne!(key, Packed::key(&units, &digests, "another packer", TEST_LEVEL));
        assert_ne!(key, Packed::key(&units, &digests, "a packer", TEST_LEVEL + 1));
        if digests.first() != digests.last() {
            let turned: Vec<Digest> = digests.iter().rev().copied().collect();
            assert_ne!(key, Packed::key(&units, &turned, "a packer", TEST_LEVEL));
        }
        writer.push_packed(units, packed);
    }
    assert!(writer.finish().unwrap() == expected);
}

#[test]
fn items_can_be_packed_again() {
    let bytes = pack(&mixed());
    let bundle = open(&bytes).unwrap();
    let items: Vec<Item> = bundle.items().unwrap().map(Result::unwrap).collect();
    assert!(pack(&items) == bytes);
    let (host, gpu): (Vec<_>, Vec<_>) = items.into_iter().partition(|i| i.image.target == Target::Host);
    let split = [pack(&host), pack(&gpu)];
    let merged = split.iter().flat_map(|b| open(b).unwrap().items().unwrap().map(Result::unwrap).collect::<Vec<_>>());
    assert!(pack(&merged.collect::<Vec<_>>()) == bytes);
}

#[test]
fn frames_are_cut_at_their_limit() {
    let mebibyte = |n: u8| (0..1u32 << 20).map(|i| (i >> 8) as u8 ^ n).collect::<Vec<u8>>();
    let mut items: Vec<Item> = (0..5).map(|n| host("big", &format!("n{n}"), &mebibyte(n))).collect();
    items.push(host("big", "n9", &mebibyte(1).repeat(3)));
    let bytes = pack(&items);
    let bundle = open(&bytes).unwrap();
    assert_eq!(bundle.frame_sizes().map(|s| s >> 20).collect::<Vec<_>>(), [2, 2, 1, 3]);
    bundle.verify().unwrap();
    for item in &items {
        assert!(bundle.image(bundle.find(item.spec.source_key, Target::Host).unwrap()).unwrap() == item.bytes);
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let items = [gpu("norm", "a", "90a"), host("norm", "a", b"so"), host("page", "b", &[7; 500])];
    let bytes = pack(&items);
    assert!(bytes.len() < 8 << 10, "{}", bytes.len());
    verified(&bytes).unwrap();
    let mut altered = bytes.clone();
    for bit in 0..bytes.len() * 8 {
        altered[bit / 8] ^= 1 << (bit % 8);
        assert!(verified(&altered).is_err(), "bit {} of byte {}", bit % 8, bit / 8);
        altered[bit / 8] = bytes[bit / 8];
    }
    for len in 0..bytes.len() {
        assert!(open(&bytes[..len]).is_err(), "cut to {len}");
    }
    for extra in [&[0][..], b"PARBAKE", &bytes] {
        assert_eq!(open(&[&bytes[..], extra].concat()).unwrap_err().code(), "PB-1304");
    }
}

#[test]
fn a_load_finds_every_flip_in_what_it_reads() {
    let items = [gpu("norm", "a", "90a"), host("norm", "a", b"so"), host("page", "b", &[7; 500])];
    let bytes = pack(&items);
    let (key, target) = (items[0].spec.source_key, items[0].image.target);
    let load = |bytes: &[u8]| -> Result<(), BundleError> {
        let bundle = open(bytes)?;
        bundle.details()?;
        bundle.image(bundle.find(key, target).ok_or(BundleError::Foreign { got: "lost".into() })?)?;
        Ok(())
    };
    load(&bytes).unwrap();
    let bundle = open(&bytes).unwrap();
    let frame = bundle.frames[bundle.find(key, target).unwrap().frame as usize];
    let first = bundle.frames[0].offset as usize;
    let read = (0..first).chain(frame.offset as usize..frame.offset as usize + frame.size as usize);
    let read: BTreeSet<usize> = read.collect();
    let mut altered = bytes.clone();
    for byte in 0..bytes.len() {
        for bit in 0..8 {
            altered[byte] ^= 1 << bit;
            assert_eq!(load(&altered).is_err(), read.contains(&byte), "bit {bit} of byte {byte}");
            altered[byte] = bytes[byte];
        }
    }
}

#[test]
fn other_files_are_named() {
    let error = |bytes: &[u8]| open(bytes).unwrap_err().to_string();
    assert_eq!(error(b""), "not a bundle: expected the magic `PARBAKE`, got an empty file");
    assert!(error(&[b"\x7fELF".as_slice(), &[0; 400]].concat()).ends_with("got an ELF file"));
    assert!(error(b"PK\x03\x04").ends_with("got a zip file"));
    assert!(error(&sample("13.0-90a.fatbin")).ends_with("got a fatbin"));
    assert!(error(b"version https://git-lfs.github.com/spec/v1").contains("was not fetched"));
    assert!(error(b"hello, world").ends_with("got the bytes 68 65 6c 6c 6f 2c 20 77"));
    assert_eq!(error(b"PARBAKE\x1a"), "the bundle is 8 bytes long; expected 256");
}

#[test]
fn another_format_is_refused_with_both_versions_named() {
    let mut bytes = pack(&mixed());
    bytes[8] = 3;
    bytes[12] = 2;
    let expected = "the bundle has format 3 and needs a reader of format 2 or newer; this library reads formats 1 to 1";
    assert_eq!(open(&bytes).unwrap_err().to_string(), expected);
    reseal(&mut bytes);
    assert_eq!(open(&bytes).unwrap_err().to_string(), expected);
    // A later format that says that readers of format 1 can read it.
    bytes[12] = 1;
    bytes[RESERVED.start] = 9;
    reseal(&mut bytes);
    assert_eq!(verified(&bytes).unwrap().format, 3);
    bytes[8] = 0;
    reseal(&mut bytes);
    assert_eq!(open(&bytes).unwrap_err().code(), "PB-1303");
}

#[test]
fn forged_sizes_are_refused_before_anything_is_allocated() {
    let bytes = pack(&mixed());
    let frames_at = HEADER_BYTES + 7 * ENTRY_BYTES;
    let forge = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        reseal(&mut bytes);
        open(&bytes).map(|b| b.verify().unwrap_err().remove(0)).unwrap_or_else(|e| e)
    };
    let (most, zero) = (u64::MAX.to_le_bytes(), [0; 8]);
    assert_eq!(forge(RESERVED.start + 5, &[1]).code(), "PB-1306", "reserved");
    assert_eq!(forge(136, &[0]).code(), "PB-1314", "library: text after a zero");
    assert_eq!(forge(137, &[200]).code(), "PB-1314", "library: not ASCII");
    assert_eq!(forge(136, b"9").code(), "PB-1313", "library: other than the details say");
    assert_eq!(forge(168, &[9]).code(), "PB-1313", "launch ABI: other than the details say");
    assert_eq!(forge(16, &most).code(), "PB-1304", "file size");
    assert_eq!(forge(24, &most[..4]).code(), "PB-1306", "number of entries");
    assert_eq!(forge(28, &zero[..4]).code(), "PB-1306", "number of frames");
    assert_eq!(forge(32, &zero).code(), "PB-1306", "index place");
    assert_eq!(forge(40, &most).code(), "PB-1307", "index size");
    assert_eq!(forge(80, &zero).code(), "PB-1306", "details place");
    assert_eq!(forge(88, &most).code(), "PB-1307", "details size");
    assert_eq!(forge(88, &(1u64 << 20).to_le_bytes()).code(), "PB-1304", "details size");
    assert_eq!(forge(96, &most).code(), "PB-1307", "details inflated size");
    assert_eq!(forge(96, &(60u64 << 20).to_le_bytes()).code(), "PB-1309", "details inflated size");
    assert_eq!(forge(frames_at, &zero).code(), "PB-1306", "frame place");
    assert_eq!(forge(frames_at + 8, &most[..4]).code(), "PB-1307", "frame size");
    assert_eq!(forge(frames_at + 8, &2000u32.to_le_bytes()).code(), "PB-1307", "frame size");
    assert_eq!(forge(frames_at + 12, &most[..4]).code(), "PB-1307", "frame inflated size");
    assert_eq!(forge(frames_at + 12, &(64u32 << 20).to_le_bytes()).code(), "PB-1306", "frame inflated size");
    assert_eq!(forge(HEADER_BYTES, &[255]).code(), "PB-1308", "order");
    assert_eq!(forge(HEADER_BYTES + 32, &[3]).code(), "PB-1308", "target");
    assert_eq!(forge(HEADER_BYTES + 104, &most[..4]).code(), "PB-1308", "frame of an entry");
    assert_eq!(forge(HEADER_BYTES + 108, &most[..4]).code(), "PB-1308", "offset");
    assert_eq!(forge(HEADER_BYTES + 112, &most[..4]).code(), "PB-1308", "size");
    assert_eq!(forge(HEADER_BYTES + 112, &zero[..4]).code(), "PB-1308", "size");
    assert_eq!(forge(HEADER_BYTES + 72, &most).code(), "PB-1310", "image digest");
    assert_eq!(forge(HEADER_BYTES + 40, &most).code(), "PB-1313", "build key");
}

#[test]
fn an_image_of_another_architecture_than_the_index_claims_is_found() {
    let bytes = pack(&[gpu("norm", "a", "90a")]);
    for claimed in ["sm_90", "sm_80", "sm_100f"] {
        let code = encode_target(claimed.parse().unwrap());
        let mut forged = with_details(&bytes, |json| *json = json.replace("sm_90a", claimed));
        forged[HEADER_BYTES + 32..HEADER_BYTES + 36].copy_from_slice(&code.to_le_bytes());
        reseal(&mut forged);
        // Every hash is right, and details and index agree: only the code itself tells.
        let errors = verified(&forged).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let got = |source: &FatbinError| matches!(source, FatbinError::Label { .. } | FatbinError::Contents { .. });
        assert!(matches!(&errors[0], BundleError::Contents { source, .. } if got(source)), "{errors:?}");
    }
}

#[test]
fn what_a_signature_covers_is_read_before_anything_is_believed() {
    let bytes = pack(&mixed());
    let signed = |bytes: &[u8]| Opening::read(bytes.to_vec()).unwrap().signed().unwrap().to_vec();
    let bundle = open(&bytes).unwrap();
    assert_eq!(signed(&bytes), bundle.signed_bytes().unwrap());
    assert_eq!(signed(&bytes).len() as u64, bundle.signed_size());
    // Whatever is there, some bytes are covered, and reading them costs what the file is long.
    for garbage in [Vec::new(), vec![1; 100], vec![0xff; 5000], bytes[..300].to_vec()] {
        assert_eq!(signed(&garbage), garbage);
    }
    let large: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let mut large = [&bytes[..HEADER_BYTES], &large].concat();
    large[40..48].copy_from_slice(&500_000u64.to_le_bytes());
    assert_eq!(signed(&large), large[..HEADER_BYTES + 500_000]);
}

#[test]
fn a_frame_states_its_own_size() {
    let raw = vec![5; 1000];
    let packed = zstd::bulk::compress(&raw, 3).unwrap();
    let inflate = |bytes: &[u8], size| read::inflate(Part::Details, bytes, size);
    assert_eq!(inflate(&packed, 1000).unwrap(), raw);
    assert_eq!(inflate(&packed, 999).unwrap_err().code(), "PB-1309");
    assert_eq!(inflate(&packed, 60 << 20).unwrap_err().code(), "PB-1309");
    assert_eq!(inflate(&[&packed[..], &packed].concat(), 1000).unwrap_err().code(), "PB-1309");
    assert_eq!(inflate(&[&packed[..], &[0]].concat(), 1000).unwrap_err().code(), "PB-1309");
    assert_eq!(inflate(&packed[..packed.len() - 1], 1000).unwrap_err().code(), "PB-1309");
    let mut streamed = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    std::io::Write::write_all(&mut streamed, &raw).unwrap();
    let error = inflate(&streamed.finish().unwrap(), 1000).unwrap_err().to_string();
    assert!(error.ends_with("states no size"), "{error}");
}

#[test]
fn all_violations_are_listed_in_order() {
    let mut bytes = pack(&mixed());
    let frames: Vec<Frame> = open(&bytes).unwrap().frames;
    let details = long(&bytes, 80) as usize;
    for at in [details, frames[1].offset as usize, frames[3].offset as usize + 2] {
        bytes[at] ^= 1;
    }
    let errors: Vec<String> = verified(&bytes).unwrap_err().iter().map(ToString::to_string).collect();
    let starts = ["the details of", "the frame 1 of", "the frame 3 of"];
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().zip(starts).all(|(e, start)| e.starts_with(start)), "{errors:#?}");
}

#[test]
fn a_bundle_that_changes_after_it_was_opened_is_found() {
    #[derive(Clone)]
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl ReadAt for Shared {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.0.lock().unwrap().read_exact_at(buf, offset)
        }
        fn len(&self) -> std::io::Result<u64> {
            ReadAt::len(&*self.0.lock().unwrap())
        }
    }
    let bytes = pack(&mixed());
    let shared = Shared(std::sync::Arc::new(std::sync::Mutex::new(bytes.clone())));
    let bundle = Bundle::open(shared.clone()).unwrap();
    shared.0.lock().unwrap()[300] ^= 1;
    assert_eq!(bundle.verify().unwrap_err()[0].code(), "PB-1305");
    shared.0.lock().unwrap().truncate(2000);
    let entry = bundle.entries()[0];
    assert_eq!(bundle.image(&entry).unwrap_err().code(), "PB-1301");
    *shared.0.lock().unwrap() = bytes;
    bundle.image(&entry).unwrap();
}

#[test]
fn what_cannot_be_packed_says_why() {
    let mut writer = BundleWriter::new(base(), TEST_LEVEL);
    let mut push = |item: Item| writer.push(item).unwrap_err();
    let false_label = item("norm", "a", "sm_90", sample("13.0-90a-as-90.fatbin"));
    assert!(matches!(push(false_label), PackError::Contents { source: FatbinError::Contents { .. }, .. }));
    let half = item("norm", "a", "sm_90a", sample("13.0-half.fatbin"));
    assert!(matches!(push(half), PackError::Contents { source: FatbinError::Cubin { .. }, .. }));
    let mut other = gpu("norm", "a", "90a");
    other.spec.entry = "other".to_owned();
    assert!(matches!(push(other), PackError::Contents { source: FatbinError::Entry { .. }, .. }));
    let toolkit = item("norm", "a", "sm_90a", sample("12.9-90a.fatbin"));
    assert_eq!(push(toolkit).to_string(), "the image of norm-a for sm_90a: expected toolkit 12.9, got 13.0");
    let mut with_toolkit = host("norm", "a", b"so");
    with_toolkit.image.toolkit = Some(Toolkit { major: 13, minor: 0 });
    assert_eq!(push(with_toolkit).code(), "PB-1325");
    assert_eq!(push(host("norm", "a", b"")).code(), "PB-1323");
    let mut without_toolkit = gpu("norm", "a", "90a");
    without_toolkit.image.toolkit = None;
    assert_eq!(push(without_toolkit).code(), "PB-1328");
    let mut old_toolkit = item("norm", "a", "compute_80", sample("13.0-ptx.fatbin"));
    old_toolkit.image.toolkit = Some(Toolkit { major: 12, minor: 9 });
    assert!(matches!(push(old_toolkit), PackError::Contents { source: FatbinError::PtxVersion { .. }, .. }));

    let finish = |items: [Item; 2]| {
        let mut writer = BundleWriter::new(base(), TEST_LEVEL);
        items.into_iter().for_each(|item| writer.push(item).unwrap());
        writer.finish().unwrap_err()
    };
    assert_eq!(finish([host("norm", "a", b"1"), host("norm", "a", b"1")]).code(), "PB-1321");
    let mut conflict = gpu("norm", "a", "90a");
    conflict.spec.options.insert("fast_math".into(), "true".into());
    assert_eq!(finish([host("norm", "a", b"1"), conflict]).code(), "PB-1322");
}

/// A bundle whose details were replaced, with all hashes right.
fn with_details(bytes: &[u8], edit: impl Fn(&mut String)) -> Vec<u8> {
    let bundle = open(bytes).unwrap();
    let mut json = String::from_utf8(bundle.details_json().unwrap()).unwrap();
    edit(&mut json);
    let details = zstd::bulk::compress(json.as_bytes(), TEST_LEVEL).unwrap();
    let old =
        bundle.header.details_offset as usize..(bundle.header.details_offset + bundle.header.details_size) as usize;
    let shift = |n: u64| n - old.len() as u64 + details.len() as u64;
    let mut index = Vec::new();
    bundle.entries.iter().for_each(|e| e.encode(&mut index));
    bundle.frames.iter().for_each(|f| Frame { offset: shift(f.offset), ..*f }.encode(&mut index));
    let header = Header {
        file_size: shift(bundle.header.file_size),
        index: Digest::of(&index),
        details_size: details.len() as u64,
        details_raw: json.len() as u64,
        details: Digest::of(&details),
        ..bundle.header
    };
    [&header.encode()[..], &index, &details, &bytes[old.end..]].concat()
}

#[test]
fn details_must_agree_with_the_index() {
    let bytes = pack(&mixed());
    verified(&with_details(&bytes, |_| {})).unwrap();
    let codes = |from: &str, to: &str| {
        let forged = with_details(&bytes, |json| {
            assert!(json.contains(from), "{from} in {json}");
            *json = json.replacen(from, to, 1);
        });
        verified(&forged).unwrap_err().iter().map(BundleError::code).collect::<BTreeSet<_>>()
    };
    let source_key = Digest::of(b"norm a").to_string();
    assert!(codes(&source_key, &Digest::default().to_string()).contains("PB-1313"));
    assert!(codes("\"toolkit\":\"13.0\"", "\"toolkit\":\"12.9\"").contains("PB-1313"));
    assert!(codes("\"entry\":\"sample\"", "\"entry\":\"simple\"").contains("PB-1311"));
    assert!(codes("\"size\":4552", "\"size\":4553").contains("PB-1313"));
    assert!(codes("\"library\"", " \"library\"").contains("PB-1313"));
    assert!(codes("\"toolchains\":[\"host\",", "\"toolchains\":[").contains("PB-1313"));
    assert!(codes("\"targets\":[\"host\",", "\"targets\":[").contains("PB-1313"));
    assert!(codes("\"library\":\"0.1.0\"", "\"library\":\"0.1.1\"").contains("PB-1313"));
    assert!(codes("\"launch_abi\":1", "\"launch_abi\":2").contains("PB-1313"));
    assert!(codes("{", "[").contains("PB-1312"));
}

#[test]
fn one_source_key_belongs_to_one_spec() {
    // Each image is told once and in canonical form, but the two specs could not be packed again.
    let forged = with_details(&pack(&mixed()), |json| {
        let mut details: Details = serde_json::from_str(json).unwrap();
        let images = details.specs[0].images.split_off(1);
        details.specs.push(SpecDetails { uri: "norm-other".to_owned(), images, ..details.specs[0].clone() });
        details.sort();
        *json = String::from_utf8(details.to_json()).unwrap();
    });
    let errors = verified(&forged).unwrap_err();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.len() == 1 && texts[0].contains("norm-other has the source key of another spec"), "{texts:?}");
}

fn random_items() -> impl Strategy<Value = Vec<Item>> {
    let one = (0usize..4, 0usize..30, prop::collection::vec(any::<u8>(), 1..2000));
    prop::collection::vec(one, 0..30).prop_map(|rows| {
        let mut seen = BTreeSet::new();
        let rows = rows.into_iter().filter(|(op, name, _)| seen.insert((*op, *name))).collect::<Vec<_>>();
        rows.into_iter().map(|(op, name, bytes)| host(&format!("op{op}"), &format!("n{name}"), &bytes)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_contents_come_back(items in random_items(), jobs in 1usize..4) {
        let bytes = pack(&items);
        let mut writer = BundleWriter::new(base(), TEST_LEVEL).jobs(jobs);
        items.iter().rev().for_each(|item| writer.push(item.clone()).unwrap());
        prop_assert!(writer.finish().unwrap() == bytes);
        let bundle = open(&bytes).unwrap();
        prop_assert_eq!(bundle.entries().len(), items.len());
        for item in &items {
            let entry = bundle.find(item.spec.source_key, Target::Host).unwrap();
            prop_assert_eq!(&bundle.image(entry).unwrap(), &item.bytes);
        }
        prop_assert!(bundle.verify().is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// With the hashes written anew, so that everything behind them is reached.
    #[test]
    fn altered_bytes_never_panic(
        changes in prop::collection::vec((0usize..1400, any::<u8>()), 1..6),
        details in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3),
        cut in prop::option::of(any::<usize>()),
    ) {
        static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = BYTES.get_or_init(|| pack(&mixed())).clone();
        let (place, size) = (long(&bytes, 80) as usize, long(&bytes, 88) as usize);
        for (at, value) in changes {
            bytes[at] = value;
        }
        for (at, value) in details {
            bytes[place + at % size] = value;
        }
        let sum = Digest::of(&bytes[place..place + size]);
        bytes[104..136].copy_from_slice(&sum.0);
        if let Some(cut) = cut {
            let len = HEADER_BYTES + cut % (bytes.len() - HEADER_BYTES);
            bytes.truncate(len);
            bytes[16..24].copy_from_slice(&(len as u64).to_le_bytes());
        }
        bytes[..16].copy_from_slice(b"PARBAKE\x1a\x01\0\0\0\x01\0\0\0");
        reseal(&mut bytes);
        if let Ok(bundle) = open(&bytes) {
            for entry in bundle.entries() {
                drop(bundle.image(entry));
            }
            drop(bundle.details());
            drop(bundle.verify());
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= HEADER_BYTES {
            bytes[..16].copy_from_slice(b"PARBAKE\x1a\x01\0\0\0\x01\0\0\0");
            reseal(&mut bytes);
        }
        prop_assert!(open(&bytes).is_err());
    }
}
