//! Which build of a library this is: the GNU build id in its ELF notes, or the digest of the whole file.
//!
//! `nvrtcVersion` says 13.0 for every patch level of 13.0, and the file name does too; the build id tells them apart
//! and costs two small reads of a file of 100 MB.

use parbake_model::Digest;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// Notes are tens of bytes; a larger segment is not read.
const MAX_NOTES: u64 = 64 << 10;

/// Which build a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BuildId {
    /// The GNU build id of an ELF file, in hex.
    Gnu(String),
    /// The digest of a file that has none.
    Content(Digest),
}

impl BuildId {
    /// Whether the file is ELF and says which build it is.
    pub(super) fn is_elf(&self) -> bool {
        matches!(self, Self::Gnu(_))
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gnu(id) => write!(f, "gnu:{id}"),
            Self::Content(digest) => write!(f, "sha256:{digest}"),
        }
    }
}

/// The build id of a file, or its digest if it has none.
pub(super) fn build_id(path: &Path) -> io::Result<BuildId> {
    match gnu(&File::open(path)?) {
        Some(id) => Ok(BuildId::Gnu(id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))),
        None => Ok(BuildId::Content(Digest::of(&std::fs::read(path)?))),
    }
}

/// Any surprise in the file means: no build id.
fn gnu(file: &File) -> Option<Vec<u8>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    // 64-bit little-endian, which is what both supported machines use.
    if &header[..6] != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = u64_at(&header, 32)?;
    let (size, count) = (u16_at(&header, 54)?, u16_at(&header, 56)?);
    if size < 56 {
        return None;
    }
    for i in 0..u64::from(count) {
        let mut program = [0; 56];
        file.read_exact_at(&mut program, table.checked_add(i * u64::from(size))?).ok()?;
        let (offset, bytes) = (u64_at(&program, 8)?, u64_at(&program, 32)?);
        if u32_at(&program, 0)? != PT_NOTE || bytes > MAX_NOTES {
            continue;
        }
        let mut notes = vec![0; bytes as usize];
        file.read_exact_at(&mut notes, offset).ok()?;
        if let Some(id) = in_notes(&notes) {
            return Some(id.to_vec());
        }
    }
    None
}

fn in_notes(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() >= 12 {
        let padded = |n: u32| (n as usize).checked_next_multiple_of(4);
        let (name, description, kind) = (u32_at(notes, 0)?, u32_at(notes, 4)?, u32_at(notes, 8)?);
        let start = 12usize.checked_add(padded(name)?)?;
        let end = start.checked_add(description as usize)?;
        let is_gnu = notes.get(12..12 + name as usize)? == b"GNU\0";
        let value = notes.get(start..end)?;
        if is_gnu && kind == NT_GNU_BUILD_ID && !value.is_empty() {
            return Some(value);
        }
        notes = notes.get(start.checked_add(padded(description)?)?..)?;
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32_at(bytes, at)?) | u64::from(u32_at(bytes, at + 4)?) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_with_bounds() {
        let note = |kind: u32| {
            let mut note = Vec::new();
            note.extend(4u32.to_le_bytes());
            note.extend(3u32.to_le_bytes());
            note.extend(kind.to_le_bytes());
            note.extend(b"GNU\0\x01\x02\x03\0");
            note
        };
        assert_eq!(in_notes(&note(3)), Some(&[1, 2, 3][..]));
        assert_eq!(in_notes(&[note(1), note(3)].concat()), Some(&[1, 2, 3][..]));
        assert_eq!(in_notes(&note(1)), None);
        assert_eq!(in_notes(&note(3)[..17]), None);
        assert_eq!(in_notes(&[0xff; 64]), None);
    }

    #[test]
    fn a_file_without_notes_is_hashed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"abc").unwrap();
        assert_eq!(build_id(file.path()).unwrap().to_string(), format!("sha256:{}", Digest::of(b"abc")));
        std::fs::write(file.path(), [b"\x7fELF\x02\x01".as_slice(), &[0xff; 80]].concat()).unwrap();
        assert!(!build_id(file.path()).unwrap().is_elf());
    }
}
