//! Writing bundles. The bytes depend on the set of items only: not on their order, nor on how many threads compress.

use super::error::{PackError, Part};
use super::{
    Details, Entry, FORMAT, FRAME_RAW, Frame, HEADER_BYTES, Header, ImageDetails, MAX_DETAILS, MAX_IMAGE, MAX_INDEX,
    OLDEST_FORMAT, SpecDetails,
};
use crate::digest::Digest;
use crate::fatbin;
use crate::target::Target;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One image and what is told about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The spec that it belongs to; its list of images is ignored.
    pub spec: SpecDetails,
    /// The image; its size is ignored.
    pub image: ImageDetails,
    /// A fatbin with one image for a GPU target, a shared object for the host.
    pub bytes: Vec<u8>,
}

impl Item {
    fn order(&self) -> (&str, Target, &str, Digest) {
        (&self.spec.op, self.image.target, &self.spec.uri, self.spec.source_key)
    }
}

/// Collects items and writes them as a bundle.
#[derive(Debug)]
pub struct BundleWriter {
    details: Details,
    level: i32,
    jobs: usize,
    items: Vec<Item>,
}

impl BundleWriter {
    /// Starts a bundle. Specs are added to the details by what is pushed; targets and toolchains are completed by it.
    #[must_use]
    pub fn new(details: Details, level: i32) -> Self {
        Self { details: Details { specs: Vec::new(), ..details }, level, jobs: 1, items: Vec::new() }
    }

    /// How many threads compress. Makes no difference to the bytes.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = jobs.max(1);
        self
    }

    /// Adds an image, after checking that it is what it is said to be.
    ///
    /// # Errors
    /// An image that is not for that target, incomplete, without its kernel, or of another toolkit.
    pub fn push(&mut self, mut item: Item) -> Result<(), PackError> {
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
        item.image.size = size as u64;
        item.image.resources = resources;
        item.spec.images.clear();
        self.items.push(item);
        Ok(())
    }

    /// Writes the bundle.
    ///
    /// # Errors
    /// Two images for one source key and target, one source key with different details, or too much of something.
    pub fn finish(mut self) -> Result<Vec<u8>, PackError> {
        self.items.sort_by(|a, b| a.order().cmp(&b.order()));
        let details = self.complete_details()?;
        let version = || PackError::Library { version: details.library.clone() };
        let library = super::library_field(&details.library).ok_or_else(version)?;
        let groups = groups(&self.items);
        let frames = self.compress_groups(&groups)?;
        let entries = entries(&self.items, &groups);
        let json = details.to_json();
        within(Part::Details, MAX_DETAILS, json.len())?;
        let packed_details = compress(Part::Details, &json, self.level)?;
        let told = Told { library, launch_abi: details.launch_abi, raw: json.len(), packed: &packed_details };
        assemble(&entries, &frames, &groups, &told)
    }

    fn complete_details(&mut self) -> Result<Details, PackError> {
        let mut details = std::mem::take(&mut self.details);
        let mut specs: BTreeMap<Digest, SpecDetails> = BTreeMap::new();
        for Item { spec, image, .. } in &self.items {
            let found = match specs.entry(spec.source_key) {
                btree_map::Entry::Vacant(empty) => empty.insert(spec.clone()),
                btree_map::Entry::Occupied(found) => found.into_mut(),
            };
            if (SpecDetails { images: Vec::new(), ..found.clone() }) != *spec {
                let (uri, other) = (found.uri.clone(), spec.uri.clone());
                return Err(PackError::Conflict { uri, other, source_key: spec.source_key });
            }
            if found.images.iter().any(|i| i.target == image.target) {
                return Err(PackError::Duplicate { uri: spec.uri.clone(), target: image.target });
            }
            found.images.push(image.clone());
            details.targets.push(image.target);
            details.toolchains.push(image.toolchain.clone());
        }
        details.specs = specs.into_values().collect();
        details.sort();
        Ok(details)
    }

    /// Compresses each group on its own, so the bytes do not depend on which thread takes which.
    fn compress_groups(&self, groups: &[&[Item]]) -> Result<Vec<Vec<u8>>, PackError> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = groups.get(number) else { return done };
                let raw: Vec<u8> = group.iter().flat_map(|item| item.bytes.iter().copied()).collect();
                done.push((number, compress(Part::Frame(number as u32), &raw, self.level)));
            }
        };
        let mut done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.jobs.min(groups.len())).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for other in others {
                done.extend(other.join().expect("bug: compression panicked"));
            }
            done
        });
        done.sort_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, frame)| frame).collect()
    }
}

/// Cuts sorted items into frames: one op and one target each, at most [`FRAME_RAW`] bytes unless one image is larger.
fn groups(items: &[Item]) -> Vec<&[Item]> {
    let (mut groups, mut rest) = (Vec::new(), items);
    while let Some(first) = rest.first() {
        let mut size = 0;
        let fits = rest.iter().take_while(|item| {
            let same = (&item.spec.op, item.image.target) == (&first.spec.op, first.image.target);
            let fits = same && (size == 0 || size + item.bytes.len() <= FRAME_RAW);
            size += item.bytes.len();
            fits
        });
        let (group, others) = rest.split_at(fits.count());
        groups.push(group);
        rest = others;
    }
    groups
}

fn entries(items: &[Item], groups: &[&[Item]]) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(items.len());
    for (frame, group) in groups.iter().enumerate() {
        let mut offset = 0;
        for Item { spec, image, bytes } in *group {
            let size = bytes.len() as u32;
            entries.push(Entry {
                source_key: spec.source_key,
                target: image.target,
                toolkit: image.toolkit,
                build_key: image.build_key,
                image: Digest::of(bytes),
                frame: frame as u32,
                offset,
                size,
            });
            offset += size;
        }
    }
    entries.sort_by_key(Entry::key);
    entries
}

fn within(part: Part, limit: usize, got: usize) -> Result<(), PackError> {
    if got <= limit { Ok(()) } else { Err(PackError::TooLarge { part, limit: limit as u64, got: got as u64 }) }
}

fn compress(part: Part, raw: &[u8], level: i32) -> Result<Vec<u8>, PackError> {
    let pack = || -> io::Result<Vec<u8>> {
        let mut compressor = zstd::bulk::Compressor::new(level)?;
        // The reader wants the size stated. The checksum of zstd would add nothing to our own.
        compressor.include_contentsize(true)?;
        compressor.include_checksum(false)?;
        compressor.compress(raw)
    };
    pack().map_err(|source| PackError::Compress { part, source })
}

/// The details as they are written, and what the header repeats of them.
struct Told<'a> {
    library: [u8; super::LIBRARY_BYTES],
    launch_abi: u32,
    raw: usize,
    packed: &'a [u8],
}

/// Lays the parts out.
fn assemble(entries: &[Entry], frames: &[Vec<u8>], groups: &[&[Item]], told: &Told<'_>) -> Result<Vec<u8>, PackError> {
    let details = told.packed;
    let index_size = entries.len() * super::ENTRY_BYTES + frames.len() * super::FRAME_BYTES;
    within(Part::Index, MAX_INDEX, index_size)?;
    within(Part::Details, MAX_DETAILS, details.len())?;
    let details_offset = (HEADER_BYTES + index_size) as u64;
    let mut index = Vec::with_capacity(index_size);
    entries.iter().for_each(|entry| entry.encode(&mut index));
    let mut end = details_offset + details.len() as u64;
    for (frame, group) in frames.iter().zip(groups) {
        let raw = group.iter().map(|item| item.bytes.len() as u32).sum();
        Frame { offset: end, size: frame.len() as u32, raw, digest: Digest::of(frame) }.encode(&mut index);
        end += frame.len() as u64;
    }
    let header = Header {
        format: FORMAT,
        oldest_reader: OLDEST_FORMAT,
        file_size: end,
        entries: entries.len() as u32,
        frames: frames.len() as u32,
        index_offset: HEADER_BYTES as u64,
        index_size: index_size as u64,
        index: Digest::of(&index),
        details_offset,
        details_size: details.len() as u64,
        details_raw: told.raw as u64,
        details: Digest::of(details),
        library: told.library,
        launch_abi: told.launch_abi,
    };
    let header = header.encode();
    let parts = [&header[..], &index, details].into_iter().chain(frames.iter().map(Vec::as_slice));
    Ok(parts.collect::<Vec<_>>().concat())
}
