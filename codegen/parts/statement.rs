//! What decides the bytes of a bundle, as far as it is known before anything is compiled.

use parbake_model::bundle::Skipped;
use parbake_model::digest::KeyFields;
use parbake_model::{Digest, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One image that a plan asks for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Unit {
    /// The identity of what is compiled.
    pub source_key: Digest,
    /// What it is compiled for.
    pub target: Target,
    /// The identity of the artifact.
    pub build_key: Digest,
    /// Readable name; it follows from the source key.
    pub uri: String,
}

/// A plan, without what it takes to carry it out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The version of the library.
    pub library: String,
    /// The launch ABI.
    pub launch_abi: u32,
    /// The targets that were asked for, sorted.
    pub targets: Vec<Target>,
    /// What the bundle says of where it comes from: level of compression, packers.
    pub provenance: BTreeMap<String, String>,
    /// What was asked for and does not exist, sorted.
    pub skipped: Vec<Skipped>,
    /// The images, sorted by source key and target.
    pub units: Vec<Unit>,
}

impl Statement {
    /// Brings all lists into their one order.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.targets.sort();
        self.targets.dedup();
        self.skipped.sort();
        self.skipped.dedup();
        self.units.sort();
        self.units.dedup();
        self
    }

    /// The name of the plan: two plans of one digest give the same bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut key = KeyFields::new("parbake.plan.v1").with("library", &self.library);
        key = key.with("launch_abi", self.launch_abi);
        for target in &self.targets {
            key = key.with("target", target);
        }
        for (name, value) in &self.provenance {
            key = key.with(format!("provenance {name}"), value);
        }
        for Skipped { op, spec, target, reason } in &self.skipped {
            key = key.with("skipped op", op).with("skipped spec", spec);
            key = key.with("skipped target", target).with("skipped reason", reason);
        }
        for unit in &self.units {
            key = key.with("source_key", unit.source_key).with("unit target", unit.target);
            key = key.with("build_key", unit.build_key);
        }
        key.finish().digest
    }
}
