//! Lock files: the specs that a job needs, by the identity that survives edits.
//!
//! Canonical JSON, like metadata: one order, two spaces, one newline at the end. A lock says what must be covered before
//! a job starts; `parbake prepare`, `parbake build --lock` and [`crate::space`] speak of the same specs.

use crate::digest::Digest;
use crate::identity::Spec;
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// The schema that is written, and the only one that is read.
pub const SCHEMA: u32 = 1;

/// No longer text is read: a hundred thousand specs.
pub const MAX_BYTES: usize = 64 << 20;

/// The specs that a job needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// [`SCHEMA`].
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
    /// Its identity: it also covers semantic options, which are the op's and not stated here.
    pub spec_id: Digest,
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
    #[error("the lock has schema {got}; this library reads schema {SCHEMA}")]
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
        let locked = |spec: &Spec| Locked {
            op: spec.op.clone(),
            axes: spec.axes.clone(),
            tactic: spec.tactic.clone(),
            spec_id: spec.spec_id,
        };
        let mut specs: Vec<Locked> = specs.into_iter().map(locked).collect();
        let mut targets: Vec<Target> = targets.into_iter().collect();
        specs.sort();
        specs.dedup();
        targets.sort();
        targets.dedup();
        Self { schema: SCHEMA, library: crate::VERSION.to_owned(), targets, specs }
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
        if schema != u64::from(SCHEMA) {
            return Err(LockError::Schema { got: schema });
        }
        serde_json::from_slice(text).map_err(LockError::Malformed)
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
        assert_eq!(code(&text.replace("\"schema\": 1", "\"schema\": 2")), "PB-1343");
        assert_eq!(code(&text.replace("\"schema\": 1", "\"schema\": 1, \"more\": 1")), "PB-1342");
        assert_eq!(code(&text[..text.len() / 2]), "PB-1342");
    }
}
