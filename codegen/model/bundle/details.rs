//! What a bundle tells about its images beyond what loading needs.

use crate::cubin::Resources;
use crate::digest::Digest;
use crate::identity::Spec;
use crate::op::Options;
use crate::snippet::Snippet;
use crate::target::{Target, Toolkit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The details of a bundle. No timestamps, no floats, everything sorted: the same contents are the same bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Details {
    /// The version of the library that the images were made for.
    pub library: String,
    /// The launch ABI that they follow.
    pub launch_abi: u32,
    /// The ids of the toolchains that made them.
    pub toolchains: Vec<String>,
    /// The targets that were asked for.
    pub targets: Vec<Target>,
    /// What is in it.
    pub specs: Vec<SpecDetails>,
    /// What was asked for and is not in it.
    pub skipped: Vec<Skipped>,
    /// Where it comes from: repository, revision and the like.
    pub provenance: BTreeMap<String, String>,
}

/// A spec and its images.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct SpecDetails {
    /// The op.
    pub op: String,
    /// Readable name.
    pub uri: String,
    /// The identity of what was compiled.
    pub source_key: Digest,
    /// The identity that survives edits.
    pub spec_id: Digest,
    /// Axis → value, in the op's order.
    pub axes: Vec<(String, String)>,
    /// Tactic → value, in the op's order.
    pub tactic: Vec<(String, u32)>,
    /// The caller's source, if the value of an axis is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<Box<Snippet>>,
    /// The kernel's name.
    pub entry: String,
    /// The digest of the declaration of its parameters. Bundles made before it was recorded have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Digest>,
    /// Semantic options, by name.
    pub options: BTreeMap<String, String>,
    /// Its images, by target.
    pub images: Vec<ImageDetails>,
}

impl SpecDetails {
    /// The details of a spec, without images.
    #[must_use]
    pub fn new(spec: &Spec, source_key: Digest, params: Digest, options: &Options) -> Self {
        let options = options.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
        Self {
            op: spec.op.clone(),
            uri: spec.uri.clone(),
            source_key,
            spec_id: spec.spec_id,
            axes: spec.axes.clone(),
            tactic: spec.tactic.clone(),
            snippet: spec.snippet.clone(),
            entry: spec.entry(),
            params: Some(params),
            options: options.collect(),
            images: Vec::new(),
        }
    }

    /// The spec.
    #[must_use]
    pub fn spec(&self) -> Spec {
        Spec {
            op: self.op.clone(),
            axes: self.axes.clone(),
            tactic: self.tactic.clone(),
            snippet: self.snippet.clone(),
            spec_id: self.spec_id,
            uri: self.uri.clone(),
        }
    }
}

/// An image.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ImageDetails {
    /// What it was compiled for.
    pub target: Target,
    /// The toolkit that compiled it; none for the host.
    pub toolkit: Option<Toolkit>,
    /// The id of the toolchain.
    pub toolchain: String,
    /// The identity of the artifact.
    pub build_key: Digest,
    /// Its size. The writer fills it in.
    pub size: u64,
    /// What the kernel uses. The writer takes it from the cubin if it is not given.
    pub resources: Option<Resources>,
}

/// A combination that is not in the bundle.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Skipped {
    /// The op.
    pub op: String,
    /// Its axes and tactic, as text.
    pub spec: String,
    /// The target.
    pub target: Target,
    /// Why.
    pub reason: String,
}

impl Details {
    /// Brings all lists into their one order.
    pub(super) fn sort(&mut self) {
        for spec in &mut self.specs {
            spec.images.sort();
        }
        self.specs.sort();
        self.toolchains.sort();
        self.toolchains.dedup();
        self.targets.sort();
        self.targets.dedup();
        self.skipped.sort();
        self.skipped.dedup();
    }

    /// The canonical JSON.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("bug: details are plain data")
    }
}
