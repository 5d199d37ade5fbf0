//! What compilations took before. Long ones are begun first, shards are balanced, and memory is shared out by it.
//!
//! Figures are of one kind of machine and one state of the sources; nothing but the order of work depends on them.

use parbake_model::identity::Spec;
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The schema of the file.
const SCHEMA: u32 = 1;
/// What is assumed if nothing like it was ever compiled: a small kernel.
const UNKNOWN: Cost = Cost { ms: 200, kib: 0 };

/// What one compilation took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Milliseconds.
    pub ms: u64,
    /// The most memory of the process that compiled, in KiB; 0 if it is not known.
    pub kib: u64,
}

/// What compilations of some specs for some targets took.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    schema: u32,
    ops: BTreeMap<String, BTreeMap<Digest, BTreeMap<Target, Cost>>>,
}

impl Default for Costs {
    fn default() -> Self {
        Self { schema: SCHEMA, ops: BTreeMap::new() }
    }
}

impl Costs {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is no such list.
    pub fn read(path: &Path) -> Result<Self, Report> {
        let refuse = |class, why: String| {
            Report::new("PB-1150", class, format!("{} cannot be used as recorded costs", path.display()))
                .with("expected", "the file that a bake leaves as costs.json in its workspace")
                .with("got", why)
        };
        let text = std::fs::read(path).map_err(|e| refuse(Class::Environment, e.to_string()))?;
        let costs: Self = serde_json::from_slice(&text).map_err(|e| refuse(Class::Failed, e.to_string()))?;
        match costs.schema {
            SCHEMA => Ok(costs),
            other => Err(refuse(Class::Failed, format!("schema {other}; this version reads {SCHEMA}"))),
        }
    }

    /// The text of the file. The same costs are the same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("bug: costs are plain data") + "\n"
    }

    /// Records what a compilation took, in place of what it took before.
    pub fn record(&mut self, spec: &Spec, target: Target, cost: Cost) {
        self.ops.entry(spec.op.clone()).or_default().entry(spec.spec_id).or_default().insert(target, cost);
    }

    /// Takes over what another list knows.
    pub fn merge(&mut self, other: Self) {
        for (op, specs) in other.ops {
            for (spec, targets) in specs {
                self.ops.entry(op.clone()).or_default().entry(spec).or_default().extend(targets);
            }
        }
    }

    /// What this very compilation took, if it was recorded.
    #[must_use]
    pub fn known(&self, op: &str, spec_id: Digest, target: Target) -> Option<Cost> {
        self.ops.get(op)?.get(&spec_id)?.get(&target).copied()
    }

    /// What a compilation may take: what it took before; else the spec for other targets, or the op's other specs; else
    /// what a small kernel takes.
    #[must_use]
    pub fn estimate(&self, spec: &Spec, target: Target) -> Cost {
        let Some(specs) = self.ops.get(&spec.op) else { return UNKNOWN };
        let same = specs.get(&spec.spec_id);
        let known = same.and_then(|targets| targets.get(&target).copied());
        let relatives =
            || same.map_or_else(|| specs.values().flat_map(|t| t.values()).collect(), |t| t.values().collect());
        known.or_else(|| mean(&relatives())).unwrap_or(UNKNOWN)
    }

    /// The most memory that any compilation of an op took, in KiB; `None` if none is known.
    #[must_use]
    pub fn peak(&self, op: &str) -> Option<u64> {
        self.ops
            .get(op)?
            .values()
            .flat_map(|targets| targets.values())
            .map(|cost| cost.kib)
            .filter(|&kib| kib > 0)
            .max()
    }
}

/// The mean time, and the most memory.
fn mean(costs: &Vec<&Cost>) -> Option<Cost> {
    let count = costs.len() as u64;
    let ms = costs.iter().map(|c| c.ms).sum::<u64>().checked_div(count)?;
    Some(Cost { ms, kib: costs.iter().map(|c| c.kib).max()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(op: &str, id: &str) -> Spec {
        Spec {
            op: op.into(),
            axes: Vec::new(),
            tactic: Vec::new(),
            snippet: None,
            spec_id: Digest::of(id.as_bytes()),
            uri: op.into(),
        }
    }

    #[test]
    fn costs_are_estimated_from_what_is_nearest() {
        let (a, b): (Target, Target) = ("sm_80".parse().unwrap(), "sm_90a".parse().unwrap());
        let mut costs = Costs::default();
        assert_eq!(costs.estimate(&spec("norm", "1"), a), UNKNOWN);
        costs.record(&spec("norm", "1"), a, Cost { ms: 100, kib: 5 });
        costs.record(&spec("norm", "2"), a, Cost { ms: 300, kib: 9 });
        assert_eq!(costs.estimate(&spec("norm", "1"), a).ms, 100);
        assert_eq!(costs.estimate(&spec("norm", "1"), b).ms, 100);
        assert_eq!(costs.estimate(&spec("norm", "3"), b), Cost { ms: 200, kib: 9 });
        assert_eq!(costs.estimate(&spec("page", "3"), b), UNKNOWN);
        assert_eq!((costs.peak("norm"), costs.peak("page")), (Some(9), None));
        let mut other = Costs::default();
        other.record(&spec("norm", "1"), a, Cost { ms: 50, kib: 7 });
        costs.merge(other);
        assert_eq!(costs.estimate(&spec("norm", "1"), a).ms, 50);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.json");
        std::fs::write(&path, costs.to_json()).unwrap();
        assert_eq!(Costs::read(&path).unwrap(), costs);
        for (text, class) in [("{}", Class::Failed), ("{\"schema\":2,\"ops\":{}}", Class::Failed)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Costs::read(&path).unwrap_err().class, class, "{text}");
        }
        assert_eq!(Costs::read(folder.path()).unwrap_err().class, Class::Environment);
    }
}
