//! What a large bundle costs: to open, to check its signature, to hold, to look something up in.

use super::{Row, row, sample};
use parbake::signature::{self, Keys};
use parbake_model::bundle::{Bundle, BundleWriter, Details, Entry, ImageDetails, Item, Opening, SpecDetails};
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// Real images of two architectures. Every spec has the same two: an index does not tell, and nothing here runs them.
const IMAGES: [(&str, &[u8]); 2] = [
    ("sm_90a", include_bytes!("../../../codegen/model/testdata/13.0-90a.fatbin")),
    ("sm_100f", include_bytes!("../../../codegen/model/testdata/13.0-100f.fatbin")),
];

/// The kernel in them.
const ENTRY: &str = "sample";

/// Specs of one op: an op and a target share frames.
const SPECS_OF_AN_OP: usize = 100;

/// A fast level: frames are not read here.
const LEVEL: i32 = 1;

fn broken(what: &str) -> Report {
    Report::new("PB-3009", Class::Failed, format!("the bundle that was just made is refused: {what}"))
}

/// Makes a bundle of many images in a temporary folder, signs it, and measures it `n` times.
pub(super) fn run(images: usize, n: usize) -> Result<Vec<Row>, Report> {
    let n = n.max(20);
    let unwritable =
        |e: std::io::Error| Report::new("PB-1117", Class::Environment, "cannot write a bundle").caused_by(e);
    let folder = tempfile::tempdir().map_err(unwritable)?;
    let path = folder.path().join("bench.pbk");
    std::fs::write(&path, make(images)?).map_err(unwritable)?;
    let keys = sign(&path)?;

    let opening = || File::open(&path).ok().and_then(|file| Opening::read(file).ok()).ok_or_else(|| broken("unread"));
    let refused = |e: parbake_model::bundle::BundleError| broken(&e.to_string());
    let open = || opening()?.open().map_err(refused);
    let open_signed = || {
        let mut opening = opening()?;
        signature::check(&keys, &path, opening.signed().map_err(refused)?).map_err(|e| broken(&e.words()))?;
        opening.open().map_err(refused)
    };
    // What is measured is what is right: all of it is there, and the signature covers it.
    let bundle = open_signed()?;
    bundle.verify().map_err(|errors| broken(&errors[0].to_string()))?;
    let all = bundle.entries().len();
    let index = format!("{all} images, header and index of {} bytes, file in memory", bundle.signed_size());

    // In turn, so that a busy moment of the machine falls on both.
    let (mut plain, mut signed) = (Vec::new(), Vec::new());
    for _ in 0..n {
        plain.extend(sample(1, || open().map(drop))?);
        signed.extend(sample(1, || open_signed().map(drop))?);
    }
    let mut rows = vec![
        row("open a bundle", "ms", 1e3, plain, index),
        row("open it, signature verified", "ms", 1e3, signed, "the same file"),
    ];
    rows.extend(resident(n, &path)?);
    rows.extend(look_ups(n, &bundle));
    Ok(rows)
}

/// Real images under many names.
fn make(images: usize) -> Result<Vec<u8>, Report> {
    let details = Details { library: VERSION.to_owned(), launch_abi: LAUNCH_ABI, ..Details::default() };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut writer = BundleWriter::new(details, LEVEL).jobs(jobs);
    // Whole specs only.
    for number in 0..images.next_multiple_of(IMAGES.len()) {
        let (spec, (target, bytes)) = (number / IMAGES.len(), IMAGES[number % IMAGES.len()]);
        let target: Target = target.parse().expect("bug: a target of this table");
        let named = |what: &str| Digest::of(format!("bench {what} {spec}").as_bytes());
        let op = format!("op{}", spec / SPECS_OF_AN_OP);
        let uri = format!("{op}-bf16-b1024-{}", named("spec").short(12));
        let spec = SpecDetails {
            op,
            uri,
            source_key: named("source"),
            spec_id: named("spec"),
            axes: vec![("dtype".to_owned(), "bf16".to_owned())],
            tactic: vec![("block".to_owned(), 1024)],
            snippet: None,
            entry: ENTRY.to_owned(),
            params: Some(named("params")),
            options: BTreeMap::new(),
            images: Vec::new(),
        };
        let image = ImageDetails {
            target,
            toolkit: Some(Toolkit { major: 13, minor: 0 }),
            toolchain: "nvrtc".to_owned(),
            build_key: Digest::of(format!("bench build {number}").as_bytes()),
            size: 0,
            resources: None,
        };
        writer.push(Item { spec, image, bytes: bytes.to_vec() }).map_err(|e| broken(&e.to_string()))?;
    }
    writer.finish().map_err(|e| broken(&e.to_string()))
}

/// Signs with a key that is gone afterwards.
fn sign(path: &Path) -> Result<Keys, Report> {
    let failed = |e: minisign::PError| broken(&e.to_string());
    let pair = minisign::KeyPair::generate_unencrypted_keypair().map_err(failed)?;
    let bundle = super::super::inspect::open(path)?;
    let bytes = bundle.signed_bytes().map_err(|e| broken(&e.to_string()))?;
    let signature = minisign::sign(None, &pair.sk, std::io::Cursor::new(bytes), Some("bench"), None);
    let text = signature.map_err(failed)?.to_string();
    std::fs::write(signature::beside(path), text).map_err(|e| broken(&e.to_string()))?;
    Keys::read(&[pair.pk.to_base64()]).map_err(|e| e.report())
}

/// Resident bytes of this process, counted page by page.
fn rss() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Rss:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// By how many bytes the process grew with each bundle that it opened and keeps.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Grown {
    index: Vec<f64>,
    details: Vec<f64>,
}

/// Opens a bundle many times and keeps them all. Nothing is told where the system does not tell.
pub(super) fn hold(path: &Path, n: usize) -> Result<Grown, Report> {
    let (mut grown, mut held) = (Grown::default(), Vec::new());
    for with_details in [false, true] {
        for _ in 0..n {
            let before = rss();
            let bundle = super::super::inspect::open(path)?;
            if with_details {
                bundle.details().map_err(|e| broken(&e.to_string()))?;
            }
            held.push(bundle);
            let list = if with_details { &mut grown.details } else { &mut grown.index };
            list.extend(before.zip(rss()).map(|(before, after)| after - before));
        }
    }
    Ok(grown)
}

/// What an open bundle keeps in memory. In a process of its own: this one has freed memory that it would reuse.
fn resident(n: usize, path: &Path) -> Result<Vec<Row>, Report> {
    let failed =
        |e: &dyn std::fmt::Display| Report::new("PB-3003", Class::Environment, "cannot run this program").caused_by(e);
    let program = std::env::current_exe().map_err(|e| failed(&e))?;
    let count = n.to_string();
    let mut command = std::process::Command::new(program);
    command.args(["bench", "open", "--json", "--n", &count, "--hold"]).arg(path);
    let output = command.output().map_err(|e| failed(&e))?;
    let grown: Grown = serde_json::from_slice(&output.stdout).map_err(|e| failed(&e))?;
    let size = format!("{} bytes an entry; what the process grows by", size_of::<Entry>());
    let rows = [
        ("memory of an open bundle", grown.index, size.as_str()),
        ("memory with its details", grown.details, "read for `inspect`, and to explain a gap"),
    ];
    let told = rows.into_iter().filter(|(_, bytes, _)| !bytes.is_empty());
    Ok(told.map(|(what, bytes, note)| row(what, "MB", 1e-6, bytes, note)).collect())
}

/// One look-up, averaged over all entries in an order that has nothing to do with theirs.
fn look_ups(n: usize, bundle: &Bundle) -> Vec<Row> {
    let mut wanted: Vec<(Digest, Target)> = bundle.entries().iter().map(|e| (e.source_key, e.target)).collect();
    // By build key, which is a hash of other things.
    let order: BTreeMap<Digest, usize> = bundle.entries().iter().map(|e| e.build_key).zip(0..).collect();
    wanted = order.into_values().map(|i| wanted[i]).collect();
    let count = wanted.len() as f64;
    let timed = |look_up: &dyn Fn(Digest, Target) -> bool| -> Vec<f64> {
        let once = || {
            let start = Instant::now();
            let found = wanted.iter().filter(|(key, target)| look_up(black_box(*key), black_box(*target))).count();
            assert_eq!(found, wanted.len(), "bug: an entry is not found");
            start.elapsed().as_secs_f64() / count
        };
        (0..n).map(|_| once()).collect()
    };
    let one = timed(&|key, target| bundle.find(key, target).is_some());
    let all = timed(&|key, _| bundle.targets_of(key).count() == IMAGES.len());
    vec![
        row("look up one image", "ns", 1e9, one, "each of its images once"),
        row("look up all images of a spec", "ns", 1e9, all, "what a call does on a miss"),
    ]
}
