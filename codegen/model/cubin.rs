//! Reads a cubin: for what it was compiled, by which toolkit, which kernels it holds and what they use, and whether all
//! of it is there.
//!
//! A cubin is an ELF file of machine 190. Its layout is not documented; what is used here was seen in the output of
//! NVRTC 12.9.86, 13.0.88 and 13.5.37 (samples in `testdata/`) and is checked against it by the tests.
//!
//! | | ABI version 7: 12.x for 75 to 90 | ABI version 8: 12.9 for 100 and up, 13.x for all |
//! |---|---|---|
//! | architecture | `e_flags` bits 0–7 | `e_flags` bits 8–15 |
//! | suffix `a` | `e_flags` bit 11, exact | 12.9: `e_flags` bit 3; 13.x: `.nv.compat` attribute 9 is 1 |
//! | suffix `f` | does not exist there | no bit tells it from the baseline |
//! | spelled target | – | `.note.nv.tkinfo` holds `-arch sm_100f` |
//! | toolkit | `e_version` (129 is 12.9) | `.note.nv.tkinfo` holds `release 13.0, V13.0.88` |
//!
//! So the text in `.note.nv.tkinfo`, which NVRTC writes as ptxas does (with `-lineinfo` and `-G` too), is the only thing that tells `f` from the
//! baseline: but for it, `100` and `100f` of one kernel are the same bytes. Without that text the suffix of an ABI 8
//! cubin is known only if it is `a`, or if the architecture has no suffixes. A text that denies the bit is an error.
//!
//! The file ends where the last thing that its headers name ends, in all samples. So a cut file is always found; up to
//! seven zero bytes behind the end are taken, because fatbins pad their payloads.

mod parameters;

pub use parameters::{Parameter, parameters};

use crate::target::{Arch, Suffix, Target, Toolkit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a cubin tells about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CubinFacts {
    /// What it was compiled for. With the baseline suffix if the suffix cannot be known.
    pub target: Target,
    /// Whether the suffix is the real one.
    pub suffix_known: bool,
    /// The toolkit that compiled it, if the file tells.
    pub toolkit: Option<Toolkit>,
    /// The names of its kernels, sorted.
    pub kernels: Vec<String>,
    /// What each kernel uses.
    pub resources: BTreeMap<String, Resources>,
}

/// What a kernel uses, as its cubin tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread: its stack and what was spilled.
    pub local_bytes: u32,
    /// Static shared memory of a block. From 9.0 on it includes the 1 KiB that the system reserves, if there is any.
    pub shared_bytes: u32,
    /// Constant bank 0: system values and the parameters.
    pub const_bytes: u32,
    /// Its parameters.
    pub param_bytes: u32,
    /// Threads of a block for which it was compiled, if it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_threads: Option<u32>,
    /// Machine code.
    pub code_bytes: u32,
}

/// Bytes that are no complete cubin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CubinError {
    /// Another kind of file.
    #[error("not a cubin: {what} at byte {at}: expected {expected}, got {got}")]
    Foreign {
        /// Which field.
        what: &'static str,
        /// Where it lies.
        at: usize,
        /// What a cubin has there.
        expected: String,
        /// What is there.
        got: String,
    },
    /// It names bytes that are not there.
    #[error("the cubin is cut: {what} ends at byte {end}, the file has {len}")]
    Truncated {
        /// What lies outside.
        what: String,
        /// Where it would end.
        end: u64,
        /// The size of the file.
        len: usize,
    },
    /// Bytes that nothing names.
    #[error("{extra} bytes follow the cubin, which ends at byte {end}")]
    Trailing {
        /// Where it ends.
        end: u64,
        /// How many follow.
        extra: u64,
    },
    /// An ABI version whose layout we do not know.
    #[error("cubin of ABI version {abi}; 7 and 8 are known")]
    UnknownAbi {
        /// The version.
        abi: u8,
    },
    /// A table inside it makes no sense.
    #[error("the cubin is malformed: {what}")]
    Malformed {
        /// Which, and how.
        what: String,
    },
    /// Two places tell different targets.
    #[error("the cubin contradicts itself: {first}, but {second}")]
    Contradiction {
        /// What one place tells.
        first: String,
        /// What the other tells.
        second: String,
    },
}

impl CubinError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "PB-1401",
            Self::Truncated { .. } => "PB-1402",
            Self::Trailing { .. } => "PB-1403",
            Self::UnknownAbi { .. } => "PB-1404",
            Self::Malformed { .. } => "PB-1405",
            Self::Contradiction { .. } => "PB-1406",
        }
    }
}

const HEADER: usize = 64;
const SECTION: u64 = 64;
const SEGMENT: u64 = 56;
const EM_CUDA: u16 = 190;
/// Section types that take no room in the file: `NOBITS`, and the vendor's for shared memory.
const NO_BITS: [u32; 3] = [8, 0x7000_000a, 0x7000_0015];
const MAX_PADDING: u64 = 7;

/// Little-endian reads that stay inside.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }
    fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }
    fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }
    fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }
    fn text(self, at: usize) -> Option<&'a str> {
        let rest = self.0.get(at..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

struct Section<'a> {
    name: &'a str,
    kind: u32,
    link: u32,
    size: u64,
    data: Bytes<'a>,
}

struct Elf<'a> {
    abi: u8,
    version: u32,
    flags: u32,
    sections: Vec<Section<'a>>,
}

fn malformed(what: impl Into<String>) -> CubinError {
    CubinError::Malformed { what: what.into() }
}

fn expect(what: &'static str, at: usize, expected: u64, got: u64) -> Result<(), CubinError> {
    let foreign = || CubinError::Foreign { what, at, expected: expected.to_string(), got: got.to_string() };
    if expected == got { Ok(()) } else { Err(foreign()) }
}

/// The bytes that a header names, or an error if not all of them are there.
fn inside<'a>(bytes: &'a [u8], what: &str, start: u64, size: u64) -> Result<(&'a [u8], u64), CubinError> {
    let end = start.saturating_add(size);
    let cut = || CubinError::Truncated { what: what.to_owned(), end, len: bytes.len() };
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let found = range.and_then(|(start, end)| bytes.get(start..end));
    found.map(|found| (found, end)).ok_or_else(cut)
}

fn elf(bytes: &[u8]) -> Result<Elf<'_>, CubinError> {
    let all = Bytes(bytes);
    if !bytes.starts_with(b"\x7fELF") {
        let got = bytes.iter().take(4).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
        let got = if got.is_empty() { "an empty file".to_owned() } else { got };
        return Err(CubinError::Foreign { what: "magic", at: 0, expected: "7f 45 4c 46".into(), got });
    }
    inside(bytes, "the ELF header", 0, HEADER as u64)?;
    let number = |at| u64::from(all.u16(at).unwrap_or(0));
    expect("ELF class", 4, 2, u64::from(bytes[4]))?;
    expect("byte order", 5, 1, u64::from(bytes[5]))?;
    expect("machine", 18, u64::from(EM_CUDA), number(18))?;
    expect("ELF type (2 is linked, 1 relocatable)", 16, 2, number(16))?;
    expect("ELF header size", 52, HEADER as u64, number(52))?;
    let (segments, sections, names) = (number(56), number(60), number(62));
    expect("section header size", 58, SECTION, number(58))?;
    if segments != 0 {
        expect("program header size", 54, SEGMENT, number(54))?;
    }
    let (segments_at, sections_at) = (all.u64(32).unwrap_or(0), all.u64(40).unwrap_or(0));
    let (segment_table, mut end) = inside(bytes, "the program header table", segments_at, segments * SEGMENT)?;
    let (section_table, sections_end) = inside(bytes, "the section header table", sections_at, sections * SECTION)?;
    end = end.max(sections_end).max(HEADER as u64);
    for (i, header) in segment_table.chunks_exact(SEGMENT as usize).enumerate() {
        let (offset, size) = (Bytes(header).u64(8).unwrap_or(0), Bytes(header).u64(32).unwrap_or(0));
        end = end.max(inside(bytes, &format!("segment {i}"), offset, size)?.1);
    }
    let mut parsed = Vec::new();
    for (i, header) in section_table.chunks_exact(SECTION as usize).map(Bytes).enumerate() {
        let kind = header.u32(4).unwrap_or(0);
        let (offset, size) = (header.u64(24).unwrap_or(0), header.u64(32).unwrap_or(0));
        let empty = kind == 0 || NO_BITS.contains(&kind);
        let (data, data_end) = inside(bytes, &format!("section {i}"), offset, if empty { 0 } else { size })?;
        end = end.max(data_end);
        let link = header.u32(40).unwrap_or(0);
        parsed.push((header.u32(0).unwrap_or(0), Section { name: "", kind, link, size, data: Bytes(data) }));
    }
    let names = parsed.get(names as usize).map(|(_, s)| s.data).ok_or_else(|| malformed("no section names"))?;
    let sections = parsed.into_iter().enumerate().map(|(i, (name, mut section))| {
        let bad = || malformed(format!("section {i} has no name"));
        section.name = if section.kind == 0 { "" } else { names.text(name as usize).ok_or_else(bad)? };
        Ok(section)
    });
    let sections = sections.collect::<Result<Vec<_>, _>>()?;
    let extra = bytes.len() as u64 - end;
    if extra > MAX_PADDING || bytes[end as usize..].iter().any(|&b| b != 0) {
        return Err(CubinError::Trailing { end, extra });
    }
    Ok(Elf { abi: bytes[8], version: all.u32(20).unwrap_or(0), flags: all.u32(48).unwrap_or(0), sections })
}

impl<'a> Elf<'a> {
    fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|s| s.name == name)
    }
    fn size(&self, name: &str) -> u32 {
        self.section(name).map_or(0, |s| u32::try_from(s.size).unwrap_or(u32::MAX))
    }
}

/// What `.note.nv.tkinfo` tells: the target as it was spelled, and the toolkit.
fn tool_info(elf: &Elf<'_>) -> (Option<(Arch, Suffix)>, Option<Toolkit>) {
    let Some(note) = elf.section(".note.nv.tkinfo") else { return (None, None) };
    let texts = note.data.0.split(|&b| b == 0).filter_map(|t| std::str::from_utf8(t).ok());
    let (mut target, mut toolkit) = (None, None);
    for text in texts {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        for pair in words.windows(2) {
            match pair {
                ["-arch", arch] => target = target.or(spelled(arch)),
                ["release", version] => toolkit = toolkit.or(version.trim_end_matches(',').parse().ok()),
                _ => {}
            }
        }
    }
    (target, toolkit)
}

/// Reads `sm_90a`. Not as [`Target`] does: a cubin may be for an architecture that we do not list.
fn spelled(text: &str) -> Option<(Arch, Suffix)> {
    let text = text.strip_prefix("sm_")?;
    let (digits, suffix) = match text.as_bytes().last()? {
        b'a' => (&text[..text.len() - 1], Suffix::Specific),
        b'f' => (&text[..text.len() - 1], Suffix::Family),
        _ => (text, Suffix::Baseline),
    };
    digits.parse().ok().map(|n| (Arch(n), suffix))
}

/// The attributes of a `.nv.info` or `.nv.compat` section: number and value.
fn attributes<'a>(section: &Section<'a>) -> Result<Vec<(u8, Bytes<'a>)>, CubinError> {
    let (data, mut at, mut found) = (section.data, 0, Vec::new());
    while at < data.0.len() {
        let bad = || malformed(format!("attribute at byte {at} of {}", section.name));
        let [format, number] = data.array(at).ok_or_else(bad)?;
        let (start, size) = match format {
            1..=3 => (at + 2, 2),
            4 => (at + 4, usize::from(data.u16(at + 2).ok_or_else(bad)?)),
            _ => return Err(bad()),
        };
        found.push((number, Bytes(data.0.get(start..start + size).ok_or_else(bad)?)));
        at = start + size;
    }
    Ok(found)
}

/// Architecture, suffix as far as it is known, and toolkit.
fn target(elf: &Elf<'_>) -> Result<(Target, bool, Option<Toolkit>), CubinError> {
    let (spelled, toolkit) = tool_info(elf);
    let (arch, specific) = match elf.abi {
        7 => (elf.flags & 0xff, elf.flags & 0x800 != 0),
        8 => {
            let compat = elf.section(".nv.compat").map(attributes).transpose()?.unwrap_or_default();
            let marked = compat.iter().any(|(number, value)| *number == 9 && value.0.first() == Some(&1));
            (elf.flags >> 8 & 0xff, elf.flags & 8 != 0 || marked)
        }
        abi => return Err(CubinError::UnknownAbi { abi }),
    };
    let arch = Arch(arch as u16);
    let bits = if specific { Suffix::Specific } else { Suffix::Baseline };
    if let Some((spelled_arch, suffix)) = spelled {
        if spelled_arch != arch || (specific && suffix != Suffix::Specific) {
            return Err(CubinError::Contradiction {
                first: format!("its header says {}", Target::Sm(arch, bits)),
                second: format!("its tool note says {}", Target::Sm(spelled_arch, suffix)),
            });
        }
        return Ok((Target::Sm(arch, suffix), true, toolkit));
    }
    let no_suffixes = arch.facts().is_some_and(|f| !f.family && !f.specific);
    let known = specific || elf.abi == 7 || no_suffixes;
    let version =
        (elf.abi == 7).then_some(Toolkit { major: (elf.version / 10) as u16, minor: (elf.version % 10) as u16 });
    Ok((Target::Sm(arch, bits), known, toolkit.or(version.filter(|v| (10..100).contains(&v.major)))))
}

/// The names of all symbols, and which are kernels.
fn symbols<'a>(elf: &Elf<'a>) -> Result<(Vec<&'a str>, Vec<&'a str>), CubinError> {
    const ENTRY: u8 = 0x10;
    let table = elf.section(".symtab").ok_or_else(|| malformed("no symbol table"))?;
    let texts = elf.sections.get(table.link as usize).ok_or_else(|| malformed("no symbol names"))?.data;
    let (mut names, mut kernels) = (Vec::new(), Vec::new());
    for (i, symbol) in table.data.0.chunks_exact(24).enumerate() {
        let at = Bytes(symbol).u32(0).unwrap_or(0) as usize;
        let name = texts.text(at).ok_or_else(|| malformed(format!("symbol {i} has no name")))?;
        let (function, global) = (symbol[4] & 0xf == 2, symbol[4] >> 4 != 0);
        if function && global && symbol[5] & ENTRY != 0 {
            kernels.push(name);
        }
        names.push(name);
    }
    kernels.sort_unstable();
    Ok((names, kernels))
}

fn resources(elf: &Elf<'_>, names: &[&str], kernel: &str) -> Result<Resources, CubinError> {
    const MAX_THREADS: u8 = 0x05;
    const EXACT_THREADS: u8 = 0x10;
    const FRAME: u8 = 0x11;
    const STACK: u8 = 0x12;
    const PARAMETERS: u8 = 0x19;
    const REGISTERS: u8 = 0x2f;
    let mut found = Resources {
        shared_bytes: elf.size(&format!(".nv.shared.{kernel}")),
        const_bytes: elf.size(&format!(".nv.constant0.{kernel}")),
        code_bytes: elf.size(&format!(".text.{kernel}")),
        ..Resources::default()
    };
    for (number, value) in elf.section(".nv.info").map(attributes).transpose()?.unwrap_or_default() {
        let (Some(symbol), Some(amount)) = (value.u32(0), value.u32(4)) else { continue };
        if names.get(symbol as usize) == Some(&kernel) {
            match number {
                REGISTERS => found.registers = amount,
                FRAME | STACK => found.local_bytes = found.local_bytes.max(amount),
                _ => {}
            }
        }
    }
    let own = elf.section(&format!(".nv.info.{kernel}")).map(attributes).transpose()?.unwrap_or_default();
    for (number, value) in own {
        match number {
            PARAMETERS => found.param_bytes = u32::from(value.u16(0).unwrap_or(0)),
            MAX_THREADS | EXACT_THREADS => {
                let sizes = [0, 4, 8].map(|at| value.u32(at).unwrap_or(1));
                found.max_threads = Some(sizes.into_iter().fold(1, u32::saturating_mul));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Reads a cubin and checks that it is complete.
///
/// # Errors
/// Bytes that are no cubin, a cubin with missing or extra bytes, or one that contradicts itself.
pub fn read(bytes: &[u8]) -> Result<CubinFacts, CubinError> {
    let elf = elf(bytes)?;
    let (target, suffix_known, toolkit) = target(&elf)?;
    let (names, kernels) = symbols(&elf)?;
    let resources = kernels.iter().map(|k| Ok((String::from(*k), resources(&elf, &names, k)?)));
    let resources = resources.collect::<Result<_, CubinError>>()?;
    let kernels = kernels.into_iter().map(str::to_owned).collect();
    Ok(CubinFacts { target, suffix_known, toolkit, kernels, resources })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::PathBuf;

    fn folder() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"))
    }

    fn sample(name: &str) -> Vec<u8> {
        std::fs::read(folder().join(name)).unwrap()
    }

    #[test]
    fn every_sample_tells_its_target_and_toolkit() {
        let mut seen = 0;
        for entry in std::fs::read_dir(folder()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Some((toolkit, arch)) = name.strip_suffix(".cubin").and_then(|n| n.split_once('-')) else { continue };
            let facts = read(&sample(&name)).unwrap();
            assert_eq!(facts.target, arch.parse().unwrap(), "{name}");
            assert_eq!(facts.toolkit, Some(toolkit.parse().unwrap()), "{name}");
            assert!(facts.suffix_known, "{name}");
            assert_eq!(facts.kernels, if arch == "80" { vec!["sample", "stacked"] } else { vec!["sample"] }, "{name}");
            let used = facts.resources["sample"];
            assert_eq!(used.param_bytes, 20, "{name}");
            assert_eq!(used.shared_bytes, if facts.target.arch() < Some(Arch(90)) { 512 } else { 1536 }, "{name}");
            assert!((8..40).contains(&used.registers) && used.code_bytes >= 256 && used.const_bytes > 256, "{name}");
            seen += 1;
        }
        assert!(seen >= 20, "{seen}");
    }

    #[test]
    fn local_memory_is_counted() {
        assert_eq!(read(&sample("13.5-80.cubin")).unwrap().resources["stacked"].local_bytes, 64);
        assert_eq!(read(&sample("13.5-80.cubin")).unwrap().resources["sample"].local_bytes, 0);
    }

    #[test]
    fn without_the_tool_note_the_suffix_is_known_as_far_as_bits_tell() {
        for (name, target, known) in [
            ("12.9-90.cubin", "sm_90", true),
            ("12.9-90a.cubin", "sm_90a", true),
            ("12.9-100.cubin", "sm_100", false),
            ("12.9-100a.cubin", "sm_100a", true),
            ("12.9-100f.cubin", "sm_100", false),
            ("13.0-80.cubin", "sm_80", true),
            ("13.0-90.cubin", "sm_90", false),
            ("13.0-90a.cubin", "sm_90a", true),
            ("13.0-100a.cubin", "sm_100a", true),
            ("13.5-90a.cubin", "sm_90a", true),
            ("13.5-100f.cubin", "sm_100", false),
        ] {
            let mut bytes = sample(name);
            if let Some(at) = bytes.windows(6).position(|w| w == b"-arch ") {
                bytes[at] = b'x';
            }
            let facts = read(&bytes).unwrap();
            assert_eq!((facts.target.to_string().as_str(), facts.suffix_known), (target, known), "{name}");
        }
    }

    #[test]
    fn a_false_label_is_found() {
        let mut bytes = sample("13.0-90a.cubin");
        let at = bytes.windows(6).position(|w| w == b"sm_90a").unwrap();
        bytes[at + 5] = b' ';
        assert!(matches!(read(&bytes), Err(CubinError::Contradiction { .. })));
        bytes[at + 3..at + 6].copy_from_slice(b"80 ");
        assert!(matches!(read(&bytes), Err(CubinError::Contradiction { .. })));
    }

    #[test]
    fn every_cut_is_found() {
        for name in ["12.9-80.cubin", "12.9-100f.cubin", "13.0-90a.cubin", "13.5-100f.cubin"] {
            let bytes = sample(name);
            for len in 0..bytes.len() {
                assert!(read(&bytes[..len]).is_err(), "{name} cut to {len}");
            }
            let padded = [&bytes[..], &[0; 7]].concat();
            assert_eq!(read(&padded), read(&bytes));
            assert!(matches!(read(&[&bytes[..], &[0; 8]].concat()), Err(CubinError::Trailing { extra: 8, .. })));
            assert!(matches!(read(&[&bytes[..], &[1]].concat()), Err(CubinError::Trailing { extra: 1, .. })));
        }
    }

    #[test]
    fn other_files_are_named() {
        let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert_eq!(error(b""), "not a cubin: magic at byte 0: expected 7f 45 4c 46, got an empty file");
        assert!(error(b"PK\x03\x04").contains("got 50 4b 03 04"));
        let mut host = sample("13.0-90.cubin");
        host[18] = 62;
        assert_eq!(error(&host), "not a cubin: machine at byte 18: expected 190, got 62");
        let mut newer = sample("13.0-90.cubin");
        newer[8] = 9;
        assert_eq!(read(&newer), Err(CubinError::UnknownAbi { abi: 9 }));
    }

    proptest! {
        #[test]
        fn altered_bytes_never_panic(changes in prop::collection::vec((0usize..6160, any::<u8>()), 1..20)) {
            let mut bytes = sample("13.0-90a.cubin");
            for (at, value) in changes {
                let len = bytes.len();
                bytes[at % len] = value;
            }
            drop(read(&bytes));
        }
    }
}
