//! Bundles: `.pbk` files that hold images of many specs for many targets.
//!
//! ```text
//!      0 ┌──────────────────────────────────────────────────────────────────┐
//!        │ header, 256 bytes                                                │
//!        │   magic · format · oldest reader · file length · counts          │
//!        │   place, size and SHA-256 of index and details                   │
//!        │   library version · launch ABI · zeros                           │
//!        │   SHA-256 of the bytes above                                     │
//!    256 ├──────────────────────────────────────────────────────────────────┤
//!        │ index                                                            │
//!        │   entries, 116 bytes each, ascending by (source key, target)     │
//!        │   frame table, 48 bytes each: place, sizes, SHA-256 of the frame │
//!        ├──────────────────────────────────────────────────────────────────┤
//!        │ details: one zstd frame of canonical JSON                        │
//!        ├──────────────────────────────────────────────────────────────────┤
//!        │ frames: zstd, each the images of one (op, target), concatenated  │
//!    end └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Numbers are little-endian. The parts follow each other without a gap, and the images of a frame do too, so every byte
//! belongs to something that is hashed: the header by itself, index and details by the header, frames by the index over
//! their *compressed* bytes (a zstd frame can be altered and still inflate to the same), and images by the index once
//! more after inflating. Nothing is parsed before its hash is checked, except the header.
//!
//! One image is needed by a process, thousands are in the file. So: one read of header and index, a binary search, one
//! read of one frame. The file is never mapped, because a mapped file that shrinks kills the process.
//!
//! Header fields, by offset: 0 magic, 8 format, 12 oldest reader, 16 file length, 24 number of entries, 28 number of
//! frames, 32 index place, 40 index size, 48 index SHA-256, 80 details place, 88 details size, 96 details size inflated,
//! 104 details SHA-256, 136 library version (ASCII, zero-padded), 168 launch ABI, 172 zeros, 224 header SHA-256.
//!
//! Entry fields: 0 source key, 32 target, 36 toolkit (major · 65536 + minor, 0 for the host), 40 build key, 72 image
//! SHA-256, 104 frame, 108 offset in the frame, 112 size. A target is kind · 2²⁴ + architecture · 2⁸ + suffix, with kind
//! 0 host, 1 machine code, 2 PTX and suffix 0 none, 1 `f`, 2 `a`, so that its numbers are ordered as targets are.

mod details;
mod error;
mod packed;
mod read;
mod verify;
mod write;

pub use details::{Details, ImageDetails, Skipped, SpecDetails};
pub use error::{BundleError, PackError, Part};
pub use packed::Packed;
pub use read::{Bundle, Opening, ReadAt};
pub use verify::Summary;
pub use write::{BundleWriter, Item, Unit};

use crate::digest::Digest;
use crate::target::{Arch, Suffix, Target, Toolkit};
use crate::verdict::Image;

/// The first bytes of every bundle.
pub const MAGIC: [u8; 8] = *b"PARBAKE\x1a";

/// The format that is written, and the newest that is known.
pub const FORMAT: u32 = 1;

/// The oldest format that is still read. Also what is written as the oldest reader.
pub const OLDEST_FORMAT: u32 = 1;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 256;

/// Bytes of an index entry.
pub const ENTRY_BYTES: usize = 116;

/// Bytes of a row of the frame table.
pub const FRAME_BYTES: usize = 48;

/// A frame is closed before an image that would make it larger. Only a single larger image exceeds it.
pub const FRAME_RAW: usize = 2 << 20;

/// Largest image, hence largest frame.
pub const MAX_IMAGE: usize = 64 << 20;

/// Largest index: half a million images.
pub const MAX_INDEX: usize = 64 << 20;

/// Largest details, compressed or not.
pub const MAX_DETAILS: usize = 64 << 20;

/// The compression level of releases. Level 12 takes a fifteenth of its time for an eighth more bytes.
pub const LEVEL: i32 = 19;

/// One image of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The identity of what was compiled.
    pub source_key: Digest,
    /// What it was compiled for.
    pub target: Target,
    /// The toolkit that compiled it; none for the host. Here, so that a verdict needs no details.
    pub toolkit: Option<Toolkit>,
    /// The identity of the artifact.
    pub build_key: Digest,
    /// SHA-256 of its bytes.
    pub image: Digest,
    /// The frame that holds it.
    pub frame: u32,
    /// Where in the inflated frame.
    pub offset: u32,
    /// How many bytes.
    pub size: u32,
}

impl Entry {
    /// What a verdict needs to know.
    #[must_use]
    pub fn judged(&self) -> Image {
        self.toolkit.map_or(Image::HOST, |toolkit| Image { target: self.target, toolkit })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.source_key.0);
        out.extend(encode_target(self.target).to_le_bytes());
        let toolkit = self.toolkit.map_or(0, |t| u32::from(t.major) << 16 | u32::from(t.minor));
        out.extend(toolkit.to_le_bytes());
        out.extend(self.build_key.0);
        out.extend(self.image.0);
        for number in [self.frame, self.offset, self.size] {
            out.extend(number.to_le_bytes());
        }
    }

    /// Reads an entry; an error names the field.
    fn decode(row: &[u8; ENTRY_BYTES]) -> Result<Self, &'static str> {
        let target = decode_target(number(row, 32)).ok_or("unknown target")?;
        let toolkit = number(row, 36);
        if (toolkit == 0) != (target == Target::Host) {
            return Err("a toolkit for the host, or none for a GPU");
        }
        let toolkit = Toolkit { major: (toolkit >> 16) as u16, minor: toolkit as u16 };
        Ok(Self {
            source_key: digest(row, 0),
            target,
            toolkit: (target != Target::Host).then_some(toolkit),
            build_key: digest(row, 40),
            image: digest(row, 72),
            frame: number(row, 104),
            offset: number(row, 108),
            size: number(row, 112),
        })
    }

    fn key(&self) -> (Digest, Target) {
        (self.source_key, self.target)
    }

    fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.size)
    }
}

/// A row of the frame table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame {
    offset: u64,
    size: u32,
    raw: u32,
    digest: Digest,
}

impl Frame {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_le_bytes());
        out.extend(self.size.to_le_bytes());
        out.extend(self.raw.to_le_bytes());
        out.extend(self.digest.0);
    }

    fn decode(row: &[u8; FRAME_BYTES]) -> Self {
        Self { offset: long(row, 0), size: number(row, 8), raw: number(row, 12), digest: digest(row, 16) }
    }
}

/// The header, but for what follows from the rest of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    format: u32,
    oldest_reader: u32,
    file_size: u64,
    entries: u32,
    frames: u32,
    index_offset: u64,
    index_size: u64,
    index: Digest,
    details_offset: u64,
    details_size: u64,
    details_raw: u64,
    details: Digest,
    library: [u8; LIBRARY_BYTES],
    launch_abi: u32,
}

/// Bytes of the library's version in the header.
pub const LIBRARY_BYTES: usize = 32;

const RESERVED: std::ops::Range<usize> = 172..224;

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend(MAGIC);
        out.extend(self.format.to_le_bytes());
        out.extend(self.oldest_reader.to_le_bytes());
        out.extend(self.file_size.to_le_bytes());
        out.extend(self.entries.to_le_bytes());
        out.extend(self.frames.to_le_bytes());
        out.extend(self.index_offset.to_le_bytes());
        out.extend(self.index_size.to_le_bytes());
        out.extend(self.index.0);
        out.extend(self.details_offset.to_le_bytes());
        out.extend(self.details_size.to_le_bytes());
        out.extend(self.details_raw.to_le_bytes());
        out.extend(self.details.0);
        out.extend(self.library);
        out.extend(self.launch_abi.to_le_bytes());
        out.resize(RESERVED.end, 0);
        out.extend(Digest::of(&out).0);
        out.try_into().expect("bug: header fields fill the header")
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            format: number(bytes, 8),
            oldest_reader: number(bytes, 12),
            file_size: long(bytes, 16),
            entries: number(bytes, 24),
            frames: number(bytes, 28),
            index_offset: long(bytes, 32),
            index_size: long(bytes, 40),
            index: digest(bytes, 48),
            details_offset: long(bytes, 80),
            details_size: long(bytes, 88),
            details_raw: long(bytes, 96),
            details: digest(bytes, 104),
            library: bytes[136..168].try_into().expect("bug: 32 bytes"),
            launch_abi: number(bytes, 168),
        }
    }
}

/// The library's version as the header holds it: printable ASCII, then zeros only.
fn library_text(field: &[u8; LIBRARY_BYTES]) -> Option<&str> {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    let (text, rest) = field.split_at(end);
    let good = text.iter().all(u8::is_ascii_graphic) && rest.iter().all(|&b| b == 0);
    good.then(|| std::str::from_utf8(text).ok()).flatten()
}

fn library_field(version: &str) -> Option<[u8; LIBRARY_BYTES]> {
    let mut field = [0; LIBRARY_BYTES];
    field.get_mut(..version.len())?.copy_from_slice(version.as_bytes());
    (library_text(&field) == Some(version)).then_some(field)
}

fn number(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(row[at..at + 4].try_into().expect("bug: four bytes"))
}

fn long(row: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(row[at..at + 8].try_into().expect("bug: eight bytes"))
}

fn digest(row: &[u8], at: usize) -> Digest {
    Digest(row[at..at + 32].try_into().expect("bug: 32 bytes"))
}

fn encode_target(target: Target) -> u32 {
    let (kind, arch, suffix) = match target {
        Target::Host => return 0,
        Target::Sm(arch, suffix) => (1, arch, suffix),
        Target::Compute(arch, suffix) => (2, arch, suffix),
    };
    let suffix = match suffix {
        Suffix::Baseline => 0,
        Suffix::Family => 1,
        Suffix::Specific => 2,
    };
    kind << 24 | u32::from(arch.0) << 8 | suffix
}

fn decode_target(code: u32) -> Option<Target> {
    let arch = Arch((code >> 8) as u16);
    let suffix = match code & 0xff {
        0 => Suffix::Baseline,
        1 => Suffix::Family,
        2 => Suffix::Specific,
        _ => return None,
    };
    match code >> 24 {
        0 if code == 0 => Some(Target::Host),
        1 if arch.0 != 0 => Some(Target::Sm(arch, suffix)),
        2 if arch.0 != 0 => Some(Target::Compute(arch, suffix)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
