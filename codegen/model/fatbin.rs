//! Reads a fatbin without the vendor's tools, and checks that one holds exactly what its label says.
//!
//! Observed in the output of nvFatbin 12.9, 13.0 and 13.5 (samples in `testdata/`), all little-endian:
//!
//! ```text
//! container   u32 magic 0xba55ed50 · u16 version 1 · u16 header size 16 · u64 size of what follows
//! then images u16 kind (1 PTX, 2 ELF) · u16 version 0x0101 · u32 header size · u64 payload size, padded to 8
//!             u32 @16 compressed size · u32 @28 architecture · u64 @40 flags · u64 @56 size before compression
//! flags       bit 13, 15 compressed · bit 20 suffix `a` · bit 21 suffix `f`
//! ```
//!
//! The header size differs between toolkits and targets (64 to 120) and is taken from its field. `nvFatbinAddCubin`
//! takes a 90a cubin labelled 90 and a cubin cut in half, so the label is never trusted: [`check_single`] reads what
//! is inside.

use crate::cubin::{self, CubinError, CubinFacts};
use crate::target::{Arch, Suffix, Target, Toolkit};
use std::ops::Range;

/// What an image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// PTX text.
    Ptx,
    /// A cubin.
    Elf,
}

/// One image of a fatbin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FatbinImage {
    /// What it is.
    pub kind: Kind,
    /// What its label says that it was compiled for.
    pub target: Target,
    /// Whether the payload is compressed.
    pub compressed: bool,
    /// Where the payload lies, with its padding.
    pub range: Range<usize>,
}

/// Bytes that are no fatbin, or not the one that was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FatbinError {
    /// Another kind of file.
    #[error("not a fatbin: expected the bytes 50 ed 55 ba, got {got}")]
    Magic {
        /// The first bytes.
        got: String,
    },
    /// A version or kind that we do not know.
    #[error("{what} at byte {at} of the fatbin: expected {expected}, got {got}")]
    Unknown {
        /// Which field.
        what: &'static str,
        /// Where it lies.
        at: usize,
        /// What we know.
        expected: &'static str,
        /// What is there.
        got: u64,
    },
    /// It does not end where it says.
    #[error("the fatbin is {len} bytes long, its header says {stated}")]
    Length {
        /// Its size.
        len: usize,
        /// The size that its header states.
        stated: u64,
    },
    /// An image that does not lie inside.
    #[error("image {index} of the fatbin ends at byte {end} of {len}")]
    Truncated {
        /// Which.
        index: usize,
        /// Where it would end.
        end: u64,
        /// The size of the fatbin.
        len: usize,
    },
    /// More or fewer images than one.
    #[error("expected a fatbin with one image for {expected}, got {}", list(.got))]
    Count {
        /// The target.
        expected: Target,
        /// What it holds.
        got: Vec<Target>,
    },
    /// The label of its image is another.
    #[error("expected an image for {expected}, got one labelled {got}")]
    Label {
        /// The target.
        expected: Target,
        /// What the label says.
        got: Target,
    },
    /// The payload is compressed, which older drivers do not read.
    #[error("the image for {target} is compressed inside; expected a plain one")]
    Compressed {
        /// The target.
        target: Target,
    },
    /// The image is no complete cubin.
    #[error("the image for {target} is damaged")]
    Cubin {
        /// The target.
        target: Target,
        /// What is wrong with it.
        #[source]
        source: CubinError,
    },
    /// The image was compiled for something else than its label says.
    #[error("the image is labelled {expected} but was compiled for {got}")]
    Contents {
        /// The label.
        expected: Target,
        /// What is inside.
        got: Target,
    },
    /// The kernel is not there.
    #[error("the image for {target} has no kernel `{entry}`; it has {}", names(.got))]
    Entry {
        /// The target.
        target: Target,
        /// The kernel's name.
        entry: String,
        /// What it has.
        got: Vec<String>,
    },
    /// PTX that a driver of its toolkit's version need not read.
    #[error("the PTX for {target} says `.version {got}`; CUDA {toolkit} writes up to {}.{}", .toolkit.ptx_isa().0, .toolkit.ptx_isa().1)]
    PtxVersion {
        /// The target.
        target: Target,
        /// The toolkit that is said to have written it.
        toolkit: Toolkit,
        /// The version that it states.
        got: String,
    },
}

fn list(targets: &[Target]) -> String {
    if targets.is_empty() {
        return "none".to_owned();
    }
    targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
}

fn names(kernels: &[String]) -> String {
    if kernels.is_empty() { "none".to_owned() } else { format!("`{}`", kernels.join("`, `")) }
}

impl FatbinError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Magic { .. } => "PB-1411",
            Self::Unknown { .. } => "PB-1412",
            Self::Length { .. } => "PB-1413",
            Self::Truncated { .. } => "PB-1414",
            Self::Count { .. } => "PB-1415",
            Self::Label { .. } => "PB-1416",
            Self::Compressed { .. } => "PB-1417",
            Self::Cubin { .. } => "PB-1418",
            Self::Contents { .. } => "PB-1419",
            Self::Entry { .. } => "PB-1420",
            Self::PtxVersion { .. } => "PB-1421",
        }
    }
}

const MAGIC: u32 = 0xba55_ed50;
const HEADER: usize = 16;
/// Below this, an image header lacks fields that we read.
const MIN_IMAGE_HEADER: usize = 64;
const COMPRESSED: u64 = 1 << 13 | 1 << 15;
const SPECIFIC: u64 = 1 << 20;
const FAMILY: u64 = 1 << 21;

/// A little-endian number of `N` bytes, 0 if they are not there: sizes are checked before.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + N).map_or(0, |b| b.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
}

/// The images of a fatbin, in order. They cover it exactly.
///
/// # Errors
/// Another file, an unknown version, or sizes that do not add up to the file's.
pub fn read(bytes: &[u8]) -> Result<Vec<FatbinImage>, FatbinError> {
    if bytes.len() < 4 || number::<4>(bytes, 0) != u64::from(MAGIC) {
        let got = bytes.iter().take(4).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
        return Err(FatbinError::Magic { got: if got.is_empty() { "an empty file".into() } else { got } });
    }
    if bytes.len() < HEADER {
        return Err(FatbinError::Length { len: bytes.len(), stated: HEADER as u64 });
    }
    let known = |what, at, expected, got, ok: bool| {
        if ok { Ok(()) } else { Err(FatbinError::Unknown { what, at, expected, got }) }
    };
    let (version, header) = (number::<2>(bytes, 4), number::<2>(bytes, 6));
    known("container version", 4, "1", version, version == 1)?;
    known("container header size", 6, "16", header, header == HEADER as u64)?;
    let stated = number::<8>(bytes, 8).saturating_add(HEADER as u64);
    if stated != bytes.len() as u64 {
        return Err(FatbinError::Length { len: bytes.len(), stated });
    }
    let (mut at, mut images) = (HEADER, Vec::new());
    while at < bytes.len() {
        let index = images.len();
        let truncated = |end| FatbinError::Truncated { index, end, len: bytes.len() };
        let image = bytes.get(at..at + MIN_IMAGE_HEADER).ok_or_else(|| truncated((at + MIN_IMAGE_HEADER) as u64))?;
        let (kind, version, header) = (number::<2>(image, 0), number::<2>(image, 2), number::<4>(image, 4));
        known("image version", at + 2, "257", version, version == 0x0101)?;
        known("image header size", at + 4, "64 or more", header, header >= MIN_IMAGE_HEADER as u64)?;
        let kind = match kind {
            1 => Kind::Ptx,
            2 => Kind::Elf,
            got => return Err(FatbinError::Unknown { what: "image kind", at, expected: "1 or 2", got }),
        };
        let start = at as u64 + header;
        let end = start.saturating_add(number::<8>(image, 8));
        if end > bytes.len() as u64 {
            return Err(truncated(end));
        }
        let (arch, flags) = (number::<4>(image, 28), number::<8>(image, 40));
        known("architecture", at + 28, "a number below 1000", arch, arch < 1000)?;
        let suffix = match (flags & SPECIFIC != 0, flags & FAMILY != 0) {
            (false, false) => Suffix::Baseline,
            (true, false) => Suffix::Specific,
            (false, true) => Suffix::Family,
            (true, true) => {
                return Err(FatbinError::Unknown { what: "flags", at: at + 40, expected: "one suffix", got: flags });
            }
        };
        let arch = Arch(arch as u16);
        let compressed = flags & COMPRESSED != 0 || number::<4>(image, 16) != 0 || number::<8>(image, 56) != 0;
        let target = if kind == Kind::Elf { Target::Sm(arch, suffix) } else { Target::Compute(arch, suffix) };
        images.push(FatbinImage { kind, target, compressed, range: start as usize..end as usize });
        at = end as usize;
    }
    Ok(images)
}

/// The payload of the only image, whose label must be `expected`.
fn single(bytes: &[u8], expected: Target) -> Result<&[u8], FatbinError> {
    let images = read(bytes)?;
    let [image] = images.as_slice() else {
        return Err(FatbinError::Count { expected, got: images.iter().map(|i| i.target).collect() });
    };
    if image.target != expected {
        return Err(FatbinError::Label { expected, got: image.target });
    }
    if image.compressed {
        return Err(FatbinError::Compressed { target: expected });
    }
    Ok(&bytes[image.range.clone()])
}

/// Checks that a fatbin holds one plain, complete cubin for `expected`, by its label and by what is inside, with the
/// kernel `entry`. A suffix that the cubin does not show is taken from the label.
///
/// # Errors
/// The first thing that is not so.
pub fn check_single(bytes: &[u8], expected: Target, entry: &str) -> Result<CubinFacts, FatbinError> {
    let payload = single(bytes, expected)?;
    let mut facts = cubin::read(payload).map_err(|source| FatbinError::Cubin { target: expected, source })?;
    if facts.target.arch() != expected.arch() || (facts.suffix_known && facts.target != expected) {
        return Err(FatbinError::Contents { expected, got: facts.target });
    }
    if !facts.kernels.iter().any(|k| k == entry) {
        return Err(FatbinError::Entry { target: expected, entry: entry.to_owned(), got: facts.kernels });
    }
    facts.target = expected;
    Ok(facts)
}

/// Checks that a fatbin holds one plain PTX text for `expected`, by its label and by what it says of itself
/// ([`check_ptx`]).
///
/// # Errors
/// The first thing that is not so.
pub fn check_single_ptx(bytes: &[u8], expected: Target, entry: &str, toolkit: Toolkit) -> Result<(), FatbinError> {
    check_ptx(single(bytes, expected)?, expected, entry, toolkit)
}

/// Checks that a PTX text is for `expected`, has the kernel `entry`, and is of a version that a driver for `toolkit`
/// reads.
///
/// # Errors
/// The first thing that is not so.
pub fn check_ptx(text: &[u8], expected: Target, entry: &str, toolkit: Toolkit) -> Result<(), FatbinError> {
    let text = String::from_utf8_lossy(text);
    let word = |line: &str, key: &str| {
        let rest = line.split_once(key)?.1.trim_start();
        rest.split(|c: char| c.is_ascii_whitespace() || matches!(c, '(' | ',' | ')')).next().map(str::to_owned)
    };
    let first = |key| text.lines().find_map(|line| word(line, key)).unwrap_or_default();
    let target = first(".target ");
    let found = target.strip_prefix("sm_").and_then(|digits| format!("compute_{digits}").parse().ok());
    if found != Some(expected) {
        return Err(FatbinError::Contents { expected, got: found.unwrap_or(Target::Host) });
    }
    let version = first(".version ");
    // The same two numbers with a dot between them as a toolkit's version.
    let isa = version.parse::<Toolkit>().map(|v| (v.major, v.minor));
    if !isa.is_ok_and(|isa| isa <= toolkit.ptx_isa()) {
        return Err(FatbinError::PtxVersion { target: expected, toolkit, got: version });
    }
    let kernels: Vec<String> = text.lines().filter_map(|l| word(l, ".entry ")).collect();
    if kernels.iter().any(|k| k == entry) {
        return Ok(());
    }
    Err(FatbinError::Entry { target: expected, entry: entry.to_owned(), got: kernels })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn check(name: &str, target: &str) -> Result<CubinFacts, FatbinError> {
        check_single(&sample(name), target.parse().unwrap(), "sample")
    }

    #[test]
    fn samples_of_every_toolkit_pass() {
        for toolkit in ["12.9", "13.0", "13.5"] {
            for arch in ["90a", "100f"] {
                let facts = check(&format!("{toolkit}-{arch}.fatbin"), arch).unwrap();
                assert_eq!(facts.target.digits(), arch);
                assert_eq!(facts.toolkit, Some(toolkit.parse().unwrap()));
                let cubin = sample(&format!("{toolkit}-{arch}.cubin"));
                assert_eq!(facts, cubin::read(&cubin).unwrap());
            }
        }
        let toolkit = Toolkit { major: 13, minor: 0 };
        check_single_ptx(&sample("13.0-ptx.fatbin"), "compute_80".parse().unwrap(), "sample", toolkit).unwrap();
    }

    #[test]
    fn images_are_listed_in_order() {
        let images = read(&sample("13.0-mixed.fatbin")).unwrap();
        let found: Vec<String> = images.iter().map(|i| format!("{:?} {}", i.kind, i.target)).collect();
        assert_eq!(found, ["Elf sm_80", "Elf sm_90", "Ptx compute_80"]);
        assert!(images.iter().all(|i| !i.compressed));
        assert_eq!(images[2].range.end, sample("13.0-mixed.fatbin").len());
        assert!(read(&sample("13.0-compressed.fatbin")).unwrap()[0].compressed);
    }

    #[test]
    fn what_the_packer_lets_pass_is_found() {
        let error = |name, target| check(name, target).unwrap_err().to_string();
        assert_eq!(error("13.0-90a-as-90.fatbin", "90"), "the image is labelled sm_90 but was compiled for sm_90a");
        assert!(matches!(check("13.0-half.fatbin", "90a"), Err(FatbinError::Cubin { .. })));
        assert_eq!(error("13.0-90a.fatbin", "90"), "expected an image for sm_90, got one labelled sm_90a");
        assert!(error("13.0-mixed.fatbin", "80").ends_with("got sm_80, sm_90, compute_80"));
        assert!(error("13.0-compressed.fatbin", "90a").contains("compressed"));
        let entry = check_single(&sample("13.0-90a.fatbin"), "90a".parse().unwrap(), "other").unwrap_err();
        assert_eq!(entry.to_string(), "the image for sm_90a has no kernel `other`; it has `sample`");
        let ptx = |target: &str, entry, toolkit: &str| {
            let toolkit = toolkit.parse().unwrap();
            check_single_ptx(&sample("13.0-ptx.fatbin"), target.parse().unwrap(), entry, toolkit)
        };
        assert!(matches!(ptx("compute_90", "sample", "13.0"), Err(FatbinError::Label { .. })));
        assert!(matches!(ptx("compute_80", "other", "13.0"), Err(FatbinError::Entry { .. })));
        assert_eq!(ptx("compute_80", "sample", "13.1"), Ok(()));
        assert_eq!(
            ptx("compute_80", "sample", "12.9").unwrap_err().to_string(),
            "the PTX for compute_80 says `.version 9.0`; CUDA 12.9 writes up to 8.8"
        );
    }

    #[test]
    fn every_label_is_checked_against_the_contents() {
        let (arch, flags) = (16 + 28, 16 + 40);
        for name in ["12.9-90a", "13.0-90a", "13.5-90a", "12.9-100f", "13.0-100f", "13.5-100f"] {
            let bytes = sample(&format!("{name}.fatbin"));
            for label in ["80", "90", "90a", "100", "100a", "100f", "103f", "120f"] {
                let target: Target = label.parse().unwrap();
                let mut forged = bytes.clone();
                forged[arch] = target.arch().unwrap().0 as u8;
                let bits = match target.suffix() {
                    Suffix::Baseline => 0,
                    Suffix::Specific => 0x10,
                    Suffix::Family => 0x20,
                };
                forged[flags + 2] = bits;
                let passes = check_single(&forged, target, "sample").is_ok();
                assert_eq!(passes, name.split_once('-').unwrap().1 == label, "{name} labelled {label}");
            }
        }
    }

    #[test]
    fn every_cut_and_every_appended_byte_is_found() {
        for name in ["12.9-90a.fatbin", "13.0-100f.fatbin", "13.0-mixed.fatbin", "13.0-ptx.fatbin"] {
            let bytes = sample(name);
            assert!((0..bytes.len()).all(|len| read(&bytes[..len]).is_err()), "{name}");
            let longer = [&bytes[..], &[0]].concat();
            assert!(matches!(read(&longer), Err(FatbinError::Length { .. })));
        }
        assert_eq!(
            read(b"\x7fELF").unwrap_err().to_string(),
            "not a fatbin: expected the bytes 50 ed 55 ba, got 7f 45 4c 46"
        );
        assert!(read(b"").unwrap_err().to_string().ends_with("an empty file"));
    }

    #[test]
    fn an_empty_container_has_no_image() {
        let empty = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read(&empty), Ok(Vec::new()));
        let error = check_single(&empty, "90".parse().unwrap(), "sample").unwrap_err();
        assert_eq!(error.to_string(), "expected a fatbin with one image for sm_90, got none");
    }

    proptest! {
        #[test]
        fn altered_bytes_never_panic(changes in prop::collection::vec((0usize..200, any::<u8>()), 1..20)) {
            let mut bytes = sample("13.0-mixed.fatbin");
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Ok(images) = read(&bytes) {
                prop_assert!(images.iter().all(|i| i.range.start <= i.range.end && i.range.end <= bytes.len()));
            }
            drop(check_single(&bytes, Target::Sm(Arch(80), Suffix::Baseline), "sample"));
        }
    }
}
