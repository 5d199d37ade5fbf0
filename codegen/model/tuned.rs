//! Tuned results: which tactic was fastest for which shape, on which machine, and of which artifact that was said.
//!
//! They are facts about one state of things, and are read as such: one of another device, driver, library or artifact says
//! nothing here. Canonical JSON, like locks.

use crate::digest::Digest;
use crate::op::Op;
use crate::target::{Target, Toolkit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The schema that is written and read.
pub const SCHEMA: u32 = 1;

/// No longer text is read.
pub const MAX_BYTES: usize = 64 << 20;

/// Results of tuning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// The schema.
    pub schema: u32,
    /// The results, sorted.
    pub results: Vec<Tuning>,
}

/// The fastest tactic for one shape.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The op's name.
    pub op: String,
    /// Axis → value, in the op's order.
    pub axes: Vec<(String, String)>,
    /// Shape symbol → extent.
    pub dims: BTreeMap<String, i64>,
    /// Scalar → value, for whoever measures it again.
    pub scalars: BTreeMap<String, f64>,
    /// Optional tensors that were given.
    pub given: Vec<String>,
    /// Tactic → value, in the op's order: the fastest.
    pub tactic: Vec<(String, u32)>,
    /// What it was measured on.
    pub machine: Machine,
    /// What was measured.
    pub artifact: Artifact,
    /// How, and what came of it.
    pub timing: Timing,
    /// Everything that it was compared with, in the order in which the launcher would take them.
    pub candidates: Vec<Candidate>,
}

/// What a result was measured on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The GPU's name, or the processor's.
    pub device: String,
    /// What a compiler is asked for there.
    pub target: Target,
    /// The driver's kernel module; none on the host.
    pub driver: Option<String>,
    /// The library's version.
    pub library: String,
}

/// The image that was fastest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Which spec.
    pub spec_id: Digest,
    /// Of which sources.
    pub source_key: Digest,
    /// Which build.
    pub build_key: Digest,
    /// SHA-256 of the image.
    pub image: Digest,
    /// The toolkit that compiled it; none for the host.
    pub toolkit: Option<Toolkit>,
}

/// Microseconds of a launch, and how they were found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// `events`, `globaltimer` or `clock`.
    pub timer: String,
    /// `graph` or `eager`.
    pub launch: String,
    /// Half of the samples are below.
    pub median_us: f64,
    /// A tenth of the samples is below.
    pub low_us: f64,
    /// A tenth of the samples is above.
    pub high_us: f64,
    /// Samples.
    pub samples: usize,
    /// Launches of a sample, over which it is divided.
    pub launches: usize,
    /// Copies of the arguments that launches take in turn, so that caches do not hold them.
    pub copies: usize,
}

/// A tactic that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Tactic → value, in the op's order.
    pub tactic: Vec<(String, u32)>,
    /// Microseconds of a launch.
    pub median_us: f64,
}

/// A text that holds no tuned results.
#[derive(Debug, thiserror::Error)]
pub enum TunedError {
    /// Too long.
    #[error("it is {size} bytes long; at most {MAX_BYTES} are read")]
    TooLong {
        /// Its size.
        size: usize,
    },
    /// Not JSON, or a field that is missing, unknown or of the wrong type.
    #[error("it cannot be understood")]
    Malformed(#[source] serde_json::Error),
    /// Written by a version with another schema.
    #[error("it has schema {got}; this library reads schema {SCHEMA}")]
    Schema {
        /// The schema that it states.
        got: u64,
    },
}

impl TunedError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "PB-2211"
    }
}

/// What an extent is compared by. One that models fix, as the trace template says, must be the same; of the others, which
/// change from call to call, a result counts for all that lie between the same powers of two.
#[must_use]
pub fn bucket(op: &Op, symbol: &str, extent: i64) -> i64 {
    match op.trace.constants.contains_key(symbol) {
        true => extent,
        false => i64::from(64 - extent.max(0).leading_zeros()),
    }
}

impl Tuning {
    /// Whether two results are about the same calls on the same kind of machine: the later one replaces the other.
    #[must_use]
    pub fn replaces(&self, op: &Op, other: &Self) -> bool {
        let alike =
            |(a, b): ((&String, &i64), (&String, &i64))| a.0 == b.0 && bucket(op, a.0, *a.1) == bucket(op, b.0, *b.1);
        self.op == other.op
            && self.axes == other.axes
            && self.machine.device == other.machine.device
            && self.machine.target == other.machine.target
            && self.dims.len() == other.dims.len()
            && self.dims.iter().zip(&other.dims).all(alike)
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.op)?;
        self.axes.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))?;
        self.dims.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))?;
        f.write_str(" →")?;
        self.tactic.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))
    }
}

impl Tuned {
    /// These results, sorted.
    #[must_use]
    pub fn new(mut results: Vec<Tuning>) -> Self {
        let key = |t: &Tuning| (t.op.clone(), t.axes.clone(), t.machine.target, t.machine.device.clone());
        results.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.dims.cmp(&b.dims)));
        Self { schema: SCHEMA, results }
    }

    /// The canonical text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("bug: results are plain data") + "\n"
    }

    /// Reads a text.
    ///
    /// # Errors
    /// A text that is too long, of another schema, or malformed in any way.
    pub fn from_json(text: &[u8]) -> Result<Self, TunedError> {
        #[derive(Deserialize)]
        struct OnlySchema {
            schema: u64,
        }
        if text.len() > MAX_BYTES {
            return Err(TunedError::TooLong { size: text.len() });
        }
        let OnlySchema { schema } = serde_json::from_slice(text).map_err(TunedError::Malformed)?;
        if schema != u64::from(SCHEMA) {
            return Err(TunedError::Schema { got: schema });
        }
        serde_json::from_slice(text).map_err(TunedError::Malformed)
    }
}
