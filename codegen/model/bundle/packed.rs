//! The images of one op and target as a bundle holds them: checked, cut into frames, compressed.
//!
//! Compressing at the highest levels takes longer than everything else about a bundle, and its result depends on the
//! images alone. So it is a value of its own, which can be kept and put into another bundle of the same images.

use super::error::{PackError, Part};
use super::write::{Item, Unit};
use super::{FRAME_RAW, MAX_IMAGE};
use crate::cubin::Resources;
use crate::digest::{Digest, KeyFields};
use crate::fatbin;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::io;

/// Images of one op and target, compressed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Packed {
    /// What is known of each image, in the bundle's order.
    pub(super) images: Vec<Facts>,
    /// How many images each frame holds, and its size before and after compression.
    pub(super) frames: Vec<FrameFacts>,
    /// The frames, one behind the other.
    #[serde(skip)]
    pub(super) bytes: Vec<u8>,
}

/// What the index says of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) size: u32,
    pub(super) digest: Digest,
    pub(super) resources: Option<Resources>,
}

/// What the frame table says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FrameFacts {
    pub(super) images: u32,
    pub(super) raw: u32,
    pub(super) size: u32,
}

/// The first bytes of packed images that were written down.
const MAGIC: &[u8; 8] = b"PBPACK\x01\x1a";

impl Packed {
    /// Checks, cuts and compresses images of one op and target, in the bundle's order.
    ///
    /// # Errors
    /// An image that is not for that target, incomplete, without its kernel, or of another toolkit.
    pub fn of(items: &[Item], level: i32) -> Result<Self, PackError> {
        let images = items.iter().map(facts).collect::<Result<Vec<_>, _>>()?;
        Self::compressed(items, images, level)
    }

    /// The same for images whose facts are known.
    pub(super) fn compressed(items: &[Item], images: Vec<Facts>, level: i32) -> Result<Self, PackError> {
        let (mut frames, mut bytes, mut rest) = (Vec::new(), Vec::new(), items);
        while !rest.is_empty() {
            let mut raw = Vec::new();
            let fits = rest.iter().take_while(|item| {
                let fits = raw.is_empty() || raw.len() + item.bytes.len() <= FRAME_RAW;
                if fits {
                    raw.extend_from_slice(&item.bytes);
                }
                fits
            });
            let count = fits.count();
            let frame = compress(Part::Frame(frames.len() as u32), &raw, level)?;
            frames.push(FrameFacts { images: count as u32, raw: raw.len() as u32, size: frame.len() as u32 });
            bytes.extend_from_slice(&frame);
            rest = &rest[count..];
        }
        Ok(Self { images, frames, bytes })
    }

    /// What decides the bytes, given the images as their toolchains made them (`images`, in the order of `units`) and the
    /// program that wraps them: two calls with the same key give the same result.
    #[must_use]
    pub fn key(units: &[Unit], images: &[Digest], packer: &str, level: i32) -> Digest {
        let mut key = KeyFields::new("parbake.packed.v1")
            .with("format", super::FORMAT)
            .with("zstd", zstd::zstd_safe::version_number())
            .with("level", level)
            .with("packer", packer);
        for (unit, image) in units.iter().zip(images) {
            key = key
                .with("target", unit.image.target)
                .with("toolkit", unit.image.toolkit.map_or("none".to_owned(), |t| t.to_string()))
                .with("entry", &unit.spec.entry)
                .with("image", image);
        }
        key.finish().digest
    }

    /// As a file holds it: what is known, the frames, and a digest of both.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let facts = serde_json::to_vec(self).expect("bug: facts are plain data");
        let mut out = MAGIC.to_vec();
        out.extend((facts.len() as u32).to_le_bytes());
        out.extend(facts);
        out.extend(&self.bytes);
        out.extend(Digest::of(&out).0);
        out
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` if it is anything else, or damaged.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if Digest::of(body).0 != digest {
            return None;
        }
        let (length, rest) = body.strip_prefix(MAGIC)?.split_at_checked(4)?;
        let (facts, frames) = rest.split_at_checked(u32::from_le_bytes(length.try_into().ok()?) as usize)?;
        let mut packed: Self = serde_json::from_slice(facts).ok()?;
        let count: u64 = packed.frames.iter().map(|f| u64::from(f.images)).sum();
        let size: u64 = packed.frames.iter().map(|f| u64::from(f.size)).sum();
        if count != packed.images.len() as u64 || size != frames.len() as u64 {
            return None;
        }
        packed.bytes = frames.to_vec();
        Some(packed)
    }
}

/// Checks that an image is what it is said to be.
pub(super) fn facts(item: &Item) -> Result<Facts, PackError> {
    let (target, size) = (item.image.target, item.bytes.len());
    let uri = || item.spec.uri.clone();
    if size == 0 || size > MAX_IMAGE {
        return Err(PackError::Size { uri: uri(), target, size });
    }
    let wrong = |source| PackError::Contents { uri: uri(), target, source };
    let entry = &item.spec.entry;
    let mut resources = item.image.resources;
    let toolkit = |expected, got| PackError::Toolkit { uri: uri(), target, expected, got };
    match (target, item.image.toolkit) {
        (Target::Host, None) => {}
        (Target::Host, got) => return Err(toolkit(None, got)),
        (Target::Compute(..), Some(got)) => {
            fatbin::check_single_ptx(&item.bytes, target, entry, got).map_err(wrong)?;
        }
        (Target::Compute(..), None) => return Err(PackError::NoToolkit { uri: uri(), target }),
        (Target::Sm(..), got) => {
            let facts = fatbin::check_single(&item.bytes, target, entry).map_err(wrong)?;
            let got = got.ok_or_else(|| PackError::NoToolkit { uri: uri(), target })?;
            if facts.toolkit.is_some_and(|expected| expected != got) {
                return Err(toolkit(facts.toolkit, Some(got)));
            }
            resources = resources.or(facts.resources.get(entry).copied());
        }
    }
    Ok(Facts { size: size as u32, digest: Digest::of(&item.bytes), resources })
}

pub(super) fn compress(part: Part, raw: &[u8], level: i32) -> Result<Vec<u8>, PackError> {
    let pack = || -> io::Result<Vec<u8>> {
        let mut compressor = zstd::bulk::Compressor::new(level)?;
        // The reader wants the size stated. The checksum of zstd would add nothing to our own.
        compressor.include_contentsize(true)?;
        compressor.include_checksum(false)?;
        compressor.compress(raw)
    };
    pack().map_err(|source| PackError::Compress { part, source })
}
