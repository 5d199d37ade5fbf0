//! Lock files: the specs that a job needs, by the identity that survives edits.
//!
//! Canonical JSON, like metadata: one order, two spaces, one newline at the end. A lock says what must be covered before
//! a job starts; `parbake prepare`, `parbake build --lock` and [`crate::space`] speak of the same specs.
//!
//! What one device was asked for need not be what another is: launchers choose tactics by the target, and some exist only
//! from an architecture on. So a spec may name targets of its own (schema 2), and one with a caller's own source carries it
//! (schema 3). A lock without either is one of schema 1, which earlier versions read.

use crate::digest::Digest;
use crate::identity::Spec;
use crate::snippet::Snippet;
use crate::target::Target;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The latest schema; older ones are read too.
pub const SCHEMA: u32 = 3;

/// No longer text is read: a hundred thousand specs.
pub const MAX_BYTES: usize = 64 << 20;

/// The specs that a job needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// 1, 2 if a spec has targets of its own, 3 if one has a snippet.
    pub schema: u32,
    /// The version of the library that wrote it; not compared, `spec_id` decides.
    pub library: String,
    /// What they must run on; empty if that is for whoever reads it to say.
    pub targets: Vec<Target>,
    /// The specs, sorted.
    pub specs: Vec<Locked>,
}

/// A spec in a lock.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// The op's name.
    pub op: String,
    /// Axis → value, in the op's order.
    pub axes: Vec<(String, String)>,
    /// Tactic → value, in the op's order.
    pub tactic: Vec<(String, u32)>,
    /// The caller's source, if the value of an axis is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<Box<Snippet>>,
    /// Its identity: it also covers semantic options, which are the op's and not stated here.
    pub spec_id: Digest,
    /// Those of the lock's targets that it is wanted for; empty for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
}

impl From<&Spec> for Locked {
    fn from(spec: &Spec) -> Self {
        let Spec { op, axes, tactic, snippet, spec_id, .. } = spec.clone();
        Self { op, axes, tactic, snippet, spec_id, targets: Vec::new() }
    }
}

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.op)?;
        self.axes.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))?;
        self.tactic.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))
    }
}

/// A text that is no lock of this schema.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Too long.
    #[error("the lock is {size} bytes long; at most {MAX_BYTES} are read")]
    TooLong {
        /// Its size.
        size: usize,
    },
    /// Not JSON, or a field that is missing, unknown or of the wrong type.
    #[error("the lock cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// Written by a version with another schema.
    #[error("the lock has schema {got}; this library reads schemas 1 to {SCHEMA}")]
    Schema {
        /// The schema that it states.
        got: u64,
    },
}

impl LockError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "PB-1341",
            Self::Malformed(_) => "PB-1342",
            Self::Schema { .. } => "PB-1343",
        }
    }
}

impl Lock {
    /// A lock of some specs: sorted, each once.
    #[must_use]
    pub fn new<'a>(specs: impl IntoIterator<Item = &'a Spec>, targets: impl IntoIterator<Item = Target>) -> Self {
        let mut specs: Vec<Locked> = specs.into_iter().map(Locked::from).collect();
        let mut targets: Vec<Target> = targets.into_iter().collect();
        specs.sort();
        specs.dedup();
        targets.sort();
        targets.dedup();
        Self { schema: schema(&specs), library: crate::VERSION.to_owned(), targets, specs }
    }

    /// A lock of exactly these pairs: sorted, each once.
    #[must_use]
    pub fn of(pairs: impl IntoIterator<Item = (Locked, Target)>) -> Self {
        let mut specs: BTreeMap<Locked, BTreeSet<Target>> = BTreeMap::new();
        for (locked, target) in pairs {
            specs.entry(Locked { targets: Vec::new(), ..locked }).or_default().insert(target);
        }
        let all: BTreeSet<Target> = specs.values().flatten().copied().collect();
        let own = |(spec, targets): (Locked, BTreeSet<Target>)| {
            let targets = if targets == all { Vec::new() } else { targets.into_iter().collect() };
            Locked { targets, ..spec }
        };
        let specs: Vec<Locked> = specs.into_iter().map(own).collect();
        let targets = all.into_iter().collect();
        Self { schema: schema(&specs), library: crate::VERSION.to_owned(), targets, specs }
    }

    /// Each spec with each target that it is wanted for.
    pub fn pairs(&self) -> impl Iterator<Item = (&Locked, Target)> {
        let targets = |spec: &Locked| if spec.targets.is_empty() { self.targets.clone() } else { spec.targets.clone() };
        self.specs.iter().flat_map(move |spec| targets(spec).into_iter().map(move |target| (spec, target)))
    }

    /// Whether a spec of this lock is wanted for a target. For one that the lock does not speak of, each is.
    #[must_use]
    pub fn asks(&self, spec: &Locked, target: Target) -> bool {
        spec.targets.is_empty() || spec.targets.contains(&target) || !self.targets.contains(&target)
    }

    /// The canonical text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("bug: a lock is plain data") + "\n"
    }

    /// Reads a text.
    ///
    /// # Errors
    /// A text that is too long, of another schema, or malformed in any way.
    pub fn from_json(text: &[u8]) -> Result<Self, LockError> {
        #[derive(Deserialize)]
        struct OnlySchema {
            schema: u64,
        }
        if text.len() > MAX_BYTES {
            return Err(LockError::TooLong { size: text.len() });
        }
        let OnlySchema { schema } = serde_json::from_slice(text).map_err(LockError::Malformed)?;
        if !(1..=u64::from(SCHEMA)).contains(&schema) {
            return Err(LockError::Schema { got: schema });
        }
        let lock: Self = serde_json::from_slice(text).map_err(LockError::Malformed)?;
        let wrong = |what| Err(LockError::Malformed(serde_json::Error::custom(what)));
        let mut own = lock.specs.iter().flat_map(|spec| &spec.targets).peekable();
        if schema == 1 && own.peek().is_some() {
            return wrong("a spec has targets of its own, which schema 1 has not");
        }
        if schema < 3 && lock.specs.iter().any(|spec| spec.snippet.is_some()) {
            return wrong("a spec has a snippet, which schemas 1 and 2 have not");
        }
        if own.any(|target| !lock.targets.contains(target)) {
            return wrong("a spec has a target that is none of the lock's");
        }
        Ok(lock)
    }
}

/// The oldest schema that has what these specs need.
fn schema(specs: &[Locked]) -> u32 {
    match specs {
        _ if specs.iter().any(|spec| spec.snippet.is_some()) => 3,
        _ if specs.iter().any(|spec| !spec.targets.is_empty()) => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_sorted_and_survives_a_trip() {
        let spec = |op: &str, block: u32| Spec {
            op: op.to_owned(),
            axes: vec![("dtype".to_owned(), "bf16".to_owned())],
            tactic: vec![("block".to_owned(), block)],
            snippet: None,
            spec_id: Digest::of(op.as_bytes()),
            uri: op.to_owned(),
        };
        let specs = [spec("b", 64), spec("a", 128), spec("b", 64)];
        let lock = Lock::new(&specs, ["sm_90a", "host", "sm_90a"].map(|t| t.parse().unwrap()));
        let names: Vec<&str> = lock.specs.iter().map(|s| s.op.as_str()).collect();
        assert_eq!((names, lock.targets.len()), (vec!["a", "b"], 2));
        let text = lock.to_json();
        let back = Lock::from_json(text.as_bytes()).unwrap();
        assert_eq!((&back, back.to_json()), (&lock, text.clone()));

        let code = |text: &str| Lock::from_json(text.as_bytes()).unwrap_err().code();
        assert_eq!(code("{"), "PB-1342");
        assert_eq!(code(&text.replace("\"schema\": 1", "\"schema\": 4")), "PB-1343");
        assert_eq!(code(&text.replace("\"schema\": 1", "\"schema\": 1, \"more\": 1")), "PB-1342");
        assert_eq!(code(&text[..text.len() / 2]), "PB-1342");
    }

    #[test]
    fn a_spec_may_be_wanted_for_some_of_the_targets_only() {
        let locked = |op: &str| Locked {
            op: op.to_owned(),
            axes: Vec::new(),
            tactic: Vec::new(),
            snippet: None,
            spec_id: Digest::of(op.as_bytes()),
            targets: Vec::new(),
        };
        let [old, new, other]: [Target; 3] = ["sm_80", "sm_90a", "sm_120f"].map(|t| t.parse().unwrap());
        let lock = Lock::of([(locked("b"), new), (locked("a"), old), (locked("a"), new), (locked("b"), new)]);
        assert_eq!((lock.schema, lock.targets.as_slice()), (2, &[old, new][..]));
        assert_eq!((lock.specs[0].targets.len(), lock.specs[1].targets.as_slice()), (0, &[new][..]));
        let pairs: Vec<(&str, Target)> = lock.pairs().map(|(spec, target)| (spec.op.as_str(), target)).collect();
        assert_eq!(pairs, [("a", old), ("a", new), ("b", new)]);
        assert!(lock.asks(&lock.specs[1], new) && !lock.asks(&lock.specs[1], old) && lock.asks(&lock.specs[1], other));
        let text = lock.to_json();
        assert_eq!(Lock::from_json(text.as_bytes()).unwrap(), lock);
        // Where all are wanted for all, it is a lock as before.
        assert_eq!(Lock::of([(locked("a"), old), (locked("a"), new)]).schema, 1);

        let code = |from: &str, to: &str| Lock::from_json(text.replacen(from, to, 1).as_bytes()).unwrap_err().code();
        assert_eq!(code("\"schema\": 2", "\"schema\": 1"), "PB-1342");
        assert_eq!(code("\"sm_90a\"", "\"sm_120f\""), "PB-1342");
    }
}
