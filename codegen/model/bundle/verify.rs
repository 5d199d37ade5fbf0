//! Checking everything in a bundle, down to the kernels.

use super::error::{BundleError, Part};
use super::read::{Bundle, check_image};
use super::{Details, Entry, FORMAT};
use crate::digest::Digest;
use crate::fatbin;
use crate::target::Target;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a bundle holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Summary {
    /// The format.
    pub format: u32,
    /// The version of the library that it was made for.
    pub library: String,
    /// How many specs.
    pub specs: usize,
    /// How many images.
    pub images: usize,
    /// The targets of the images.
    pub targets: Vec<Target>,
    /// How many frames.
    pub frames: usize,
    /// Size of the file.
    pub bytes: u64,
    /// Size of all images.
    pub raw_bytes: u64,
    /// The digest of the index.
    pub index: Digest,
}

/// What the details say of an entry.
struct Told<'a> {
    uri: &'a str,
    entry: &'a str,
}

impl Bundle {
    /// Checks every byte, every image and that the details agree.
    ///
    /// # Errors
    /// Everything that is wrong, sorted by code and text.
    pub fn verify(&self) -> Result<Summary, Vec<BundleError>> {
        let mut errors = Vec::new();
        match self.source_size() {
            Ok(got) if got != self.file_size() => {
                errors.push(BundleError::Length { expected: self.file_size(), got });
            }
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
        errors.extend(self.signed_bytes().err());
        let details = self.checked_details(&mut errors);
        let told = details.as_ref().map(|d| self.compare(d, &mut errors)).unwrap_or_default();
        self.check_frames(&told, &mut errors);
        if errors.is_empty() {
            let targets: BTreeSet<Target> = self.entries().iter().map(|e| e.target).collect();
            let details = details.as_ref();
            return Ok(Summary {
                format: self.format(),
                library: self.library().to_owned(),
                specs: details.map_or(0, |d| d.specs.len()),
                images: self.entries().len(),
                targets: targets.into_iter().collect(),
                frames: self.frame_sizes().len(),
                bytes: self.file_size(),
                raw_bytes: self.frame_sizes().map(u64::from).sum(),
                index: self.index_digest(),
            });
        }
        errors.sort_by_cached_key(|e| (e.code(), e.to_string()));
        Err(errors)
    }

    fn checked_details(&self, errors: &mut Vec<BundleError>) -> Option<Details> {
        let json = match self.details_json() {
            Ok(json) => json,
            Err(error) => {
                errors.push(error);
                return None;
            }
        };
        let details: Details = match serde_json::from_slice(&json) {
            Ok(details) => details,
            Err(error) => {
                errors.push(BundleError::Details(error));
                return None;
            }
        };
        // A later format may have fields that we drop.
        if self.format() == FORMAT {
            let mut sorted = details.clone();
            sorted.sort();
            if sorted.to_json() != json {
                errors.push(BundleError::Disagreement { what: "they are not written in the canonical form".into() });
            }
        }
        Some(details)
    }

    /// Compares details and index both ways; gives what is told of the entries that agree.
    fn compare<'a>(&self, details: &'a Details, errors: &mut Vec<BundleError>) -> BTreeMap<(Digest, Target), Told<'a>> {
        let mut told = BTreeMap::new();
        let mut disagree = |what: String| errors.push(BundleError::Disagreement { what });
        if details.library != self.library() {
            disagree(format!("library `{}` in the header, `{}` here", self.library(), details.library));
        }
        if details.launch_abi != self.launch_abi() {
            disagree(format!("launch ABI {} in the header, {} here", self.launch_abi(), details.launch_abi));
        }
        let mut keys = BTreeSet::new();
        for spec in &details.specs {
            if !keys.insert(spec.source_key) {
                disagree(format!("{} has the source key of another spec, {}", spec.uri, spec.source_key));
            }
            if spec.images.is_empty() {
                disagree(format!("{} has no image", spec.uri));
            }
            for image in &spec.images {
                let (uri, target) = (&spec.uri, image.target);
                let Some(entry) = self.find(spec.source_key, target) else {
                    disagree(format!("{uri} for {target} is not in the index"));
                    continue;
                };
                if !details.targets.contains(&target) {
                    disagree(format!("{uri} for {target}: the target is not listed"));
                }
                if !details.toolchains.contains(&image.toolchain) {
                    disagree(format!("{uri} for {target}: the toolchain `{}` is not listed", image.toolchain));
                }
                if (entry.build_key, entry.toolkit) != (image.build_key, image.toolkit) {
                    disagree(format!("{uri} for {target}: build key or toolkit differ from the index"));
                }
                if u64::from(entry.size) != image.size {
                    disagree(format!("{uri} for {target} has {} bytes in the index, {} here", entry.size, image.size));
                }
                let new = told.insert((spec.source_key, target), Told { uri, entry: &spec.entry });
                if new.is_some() {
                    disagree(format!("{uri} for {target} is listed twice"));
                }
            }
        }
        for entry in self.entries().iter().filter(|e| !told.contains_key(&e.key())) {
            disagree(format!("{} for {} is not in the details", entry.source_key, entry.target));
        }
        told
    }

    fn check_frames(&self, told: &BTreeMap<(Digest, Target), Told<'_>>, errors: &mut Vec<BundleError>) {
        let mut by_frame: Vec<Vec<&Entry>> = vec![Vec::new(); self.frame_sizes().len()];
        for entry in self.entries() {
            by_frame[entry.frame as usize].push(entry);
        }
        for ((number, raw), mut entries) in self.frame_sizes().enumerate().zip(by_frame) {
            let part = Part::Frame(number as u32);
            entries.sort_by_key(|e| e.offset);
            let mut end = 0;
            for entry in &entries {
                if u64::from(entry.offset) != end {
                    let (expected, got) = (end, u64::from(entry.offset));
                    errors.push(BundleError::Layout { part, what: "place of the next image", expected, got });
                }
                end = entry.end();
            }
            if end != u64::from(raw) {
                let (expected, got) = (u64::from(raw), end);
                errors.push(BundleError::Layout { part, what: "end of the last image", expected, got });
            }
            let frame = match self.read_frame(number as u32) {
                Ok(frame) => frame,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            for entry in entries {
                let bytes = &frame[entry.offset as usize..entry.end() as usize];
                errors.extend(check_image(entry, bytes).err());
                if let Some(told) = told.get(&entry.key()) {
                    errors.extend(check_contents(entry, told, bytes).err());
                }
            }
        }
    }
}

fn check_contents(entry: &Entry, told: &Told<'_>, bytes: &[u8]) -> Result<(), BundleError> {
    let (target, uri) = (entry.target, told.uri);
    let wrong = |source| BundleError::Contents { uri: uri.to_owned(), target, source };
    match (target, entry.toolkit) {
        (Target::Compute(..), Some(toolkit)) => {
            fatbin::check_single_ptx(bytes, target, told.entry, toolkit).map_err(wrong)?;
        }
        // A shared object: its hash is all that is known of it. Without a toolkit there are no entries for a GPU.
        (Target::Host, _) | (Target::Compute(..), None) => {}
        (Target::Sm(..), _) => {
            let facts = fatbin::check_single(bytes, target, told.entry).map_err(wrong)?;
            if facts.toolkit.is_some() && facts.toolkit != entry.toolkit {
                let what = format!("{uri} for {target} was compiled by another toolkit");
                return Err(BundleError::Disagreement { what });
            }
        }
    }
    Ok(())
}
