//! Writing bundles. The bytes depend on the set of items only: not on their order, nor on how many threads compress.

use super::error::{PackError, Part};
use super::packed::{self, Facts, Packed, compress};
use super::{
    Details, Entry, FORMAT, Frame, HEADER_BYTES, Header, ImageDetails, MAX_DETAILS, MAX_INDEX, OLDEST_FORMAT,
    SpecDetails,
};
use crate::digest::Digest;
use crate::target::Target;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is told about an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The spec that it belongs to; its list of images is ignored.
    pub spec: SpecDetails,
    /// The image; its size is ignored.
    pub image: ImageDetails,
}

impl Unit {
    /// Images of one op and target lie together, in this order.
    #[must_use]
    pub fn order(&self) -> (&str, Target, &str, Digest) {
        order(&self.spec, &self.image)
    }
}

fn order<'a>(spec: &'a SpecDetails, image: &ImageDetails) -> (&'a str, Target, &'a str, Digest) {
    (&spec.op, image.target, &spec.uri, spec.source_key)
}

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

/// Collects items and writes them as a bundle.
#[derive(Debug)]
pub struct BundleWriter {
    details: Details,
    level: i32,
    jobs: usize,
    items: Vec<(Item, Facts)>,
    packed: Vec<(Vec<Unit>, Packed)>,
}

impl BundleWriter {
    /// Starts a bundle. Specs are added to the details by what is pushed; targets and toolchains are completed by it.
    #[must_use]
    pub fn new(details: Details, level: i32) -> Self {
        let details = Details { specs: Vec::new(), ..details };
        Self { details, level, jobs: 1, items: Vec::new(), packed: Vec::new() }
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
    pub fn push(&mut self, item: Item) -> Result<(), PackError> {
        let facts = packed::facts(&item)?;
        self.items.push((item, facts));
        Ok(())
    }

    /// Adds all images of one op and target, which were packed before, in their order ([`Unit::order`]).
    ///
    /// # Panics
    /// With another number of images than are told about, or none.
    pub fn push_packed(&mut self, units: Vec<Unit>, packed: Packed) {
        assert!(!units.is_empty() && units.len() == packed.images.len(), "bug: these are not the packed images");
        self.packed.push((units, packed));
    }

    /// Writes the bundle.
    ///
    /// # Errors
    /// Two images for one source key and target, one source key with different details, or too much of something.
    pub fn finish(mut self) -> Result<Vec<u8>, PackError> {
        let mut groups = self.compress_items()?;
        groups.append(&mut self.packed);
        groups.sort_by(|(a, _), (b, _)| a[0].order().cmp(&b[0].order()));
        let details = self.complete_details(&groups)?;
        let version = || PackError::Library { version: details.library.clone() };
        let library = super::library_field(&details.library).ok_or_else(version)?;
        let json = details.to_json();
        within(Part::Details, MAX_DETAILS, json.len())?;
        let packed_details = compress(Part::Details, &json, self.level)?;
        let told = Told { library, launch_abi: details.launch_abi, raw: json.len(), packed: &packed_details };
        assemble(&groups, &told)
    }

    fn complete_details(&mut self, groups: &[(Vec<Unit>, Packed)]) -> Result<Details, PackError> {
        let mut details = std::mem::take(&mut self.details);
        let mut specs: BTreeMap<Digest, SpecDetails> = BTreeMap::new();
        for (Unit { spec, image }, facts) in groups.iter().flat_map(|(units, packed)| units.iter().zip(&packed.images))
        {
            let spec = SpecDetails { images: Vec::new(), ..spec.clone() };
            let image = ImageDetails {
                size: u64::from(facts.size),
                resources: image.resources.or(facts.resources),
                ..image.clone()
            };
            let found = match specs.entry(spec.source_key) {
                btree_map::Entry::Vacant(empty) => empty.insert(spec.clone()),
                btree_map::Entry::Occupied(found) => found.into_mut(),
            };
            if (SpecDetails { images: Vec::new(), ..found.clone() }) != spec {
                let (uri, other) = (found.uri.clone(), spec.uri.clone());
                return Err(PackError::Conflict { uri, other, source_key: spec.source_key });
            }
            if found.images.iter().any(|i| i.target == image.target) {
                return Err(PackError::Duplicate { uri: spec.uri.clone(), target: image.target });
            }
            details.targets.push(image.target);
            details.toolchains.push(image.toolchain.clone());
            found.images.push(image);
        }
        details.specs = specs.into_values().collect();
        details.sort();
        Ok(details)
    }

    /// Compresses the images of each op and target on their own, so the bytes do not depend on which thread takes which.
    fn compress_items(&mut self) -> Result<Vec<(Vec<Unit>, Packed)>, PackError> {
        let mut items = std::mem::take(&mut self.items);
        items.sort_by(|(a, _), (b, _)| order(&a.spec, &a.image).cmp(&order(&b.spec, &b.image)));
        let (items, facts): (Vec<Item>, Vec<Facts>) = items.into_iter().unzip();
        let same = |a: &Item, b: &Item| (&a.spec.op, a.image.target) == (&b.spec.op, b.image.target);
        let groups: Vec<&[Item]> = items.chunk_by(same).collect();
        let starts: Vec<usize> = groups.iter().scan(0, |at, g| Some(std::mem::replace(at, *at + g.len()))).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = groups.get(number) else { return done };
                let facts = facts[starts[number]..][..group.len()].to_vec();
                done.push((number, Packed::compressed(group, facts, self.level)));
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
        let units = |items: &[Item]| {
            items.iter().map(|i| Unit { spec: i.spec.clone(), image: i.image.clone() }).collect::<Vec<_>>()
        };
        done.into_iter().map(|(number, packed)| Ok((units(groups[number]), packed?))).collect()
    }
}

fn entries(groups: &[(Vec<Unit>, Packed)]) -> Vec<Entry> {
    let (mut entries, mut frame) = (Vec::new(), 0);
    for (units, packed) in groups {
        let mut images = units.iter().zip(&packed.images);
        for held in &packed.frames {
            let mut offset = 0;
            for (Unit { spec, image }, facts) in images.by_ref().take(held.images as usize) {
                entries.push(Entry {
                    source_key: spec.source_key,
                    target: image.target,
                    toolkit: image.toolkit,
                    build_key: image.build_key,
                    image: facts.digest,
                    frame,
                    offset,
                    size: facts.size,
                });
                offset += facts.size;
            }
            frame += 1;
        }
    }
    entries.sort_by_key(Entry::key);
    entries
}

fn within(part: Part, limit: usize, got: usize) -> Result<(), PackError> {
    if got <= limit { Ok(()) } else { Err(PackError::TooLarge { part, limit: limit as u64, got: got as u64 }) }
}

/// The details as they are written, and what the header repeats of them.
struct Told<'a> {
    library: [u8; super::LIBRARY_BYTES],
    launch_abi: u32,
    raw: usize,
    packed: &'a [u8],
}

/// Lays the parts out.
fn assemble(groups: &[(Vec<Unit>, Packed)], told: &Told<'_>) -> Result<Vec<u8>, PackError> {
    let (entries, details) = (entries(groups), told.packed);
    let frames: usize = groups.iter().map(|(_, packed)| packed.frames.len()).sum();
    let index_size = entries.len() * super::ENTRY_BYTES + frames * super::FRAME_BYTES;
    within(Part::Index, MAX_INDEX, index_size)?;
    within(Part::Details, MAX_DETAILS, details.len())?;
    let details_offset = (HEADER_BYTES + index_size) as u64;
    let mut index = Vec::with_capacity(index_size);
    entries.iter().for_each(|entry| entry.encode(&mut index));
    let mut end = details_offset + details.len() as u64;
    for (_, packed) in groups {
        let mut bytes = &packed.bytes[..];
        for frame in &packed.frames {
            let (these, others) = bytes.split_at(frame.size as usize);
            let digest = Digest::of(these);
            Frame { offset: end, size: frame.size, raw: frame.raw, digest }.encode(&mut index);
            end += u64::from(frame.size);
            bytes = others;
        }
    }
    let header = Header {
        format: FORMAT,
        oldest_reader: OLDEST_FORMAT,
        file_size: end,
        entries: entries.len() as u32,
        frames: frames as u32,
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
    let parts = [&header[..], &index, details].into_iter().chain(groups.iter().map(|(_, packed)| &packed.bytes[..]));
    Ok(parts.collect::<Vec<_>>().concat())
}
