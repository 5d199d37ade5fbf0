//! Where a kernel came from, or why there is none: every candidate with its verdict.

use parbake_model::verdict::Trace;
use parbake_model::{Digest, Target};
use serde::Serialize;
use std::fmt;

/// Where a kernel came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It was loaded already in this process.
    Registry,
    /// A bundle.
    Bundle,
    /// The store.
    Store,
    /// It was compiled for this call.
    Jit,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Registry => "registry",
            Self::Bundle => "bundle",
            Self::Store => "store",
            Self::Jit => "jit",
        })
    }
}

/// A place that was looked at, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// The place: `bundle norm.pbk`, `store`, `jit`.
    pub place: String,
    /// The candidate there, if there was one.
    pub target: Option<Target>,
    /// What came of it.
    pub outcome: String,
}

/// The whole path of one look-up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Decision {
    /// The op.
    pub op: String,
    /// `family/op`.
    pub path: String,
    /// The spec, as a person writes it.
    pub spec: String,
    /// Its URI.
    pub uri: String,
    /// What an image must have been compiled from.
    pub source_key: Digest,
    /// What it must run on, in words.
    pub runs_on: String,
    /// What a bake that covers it is given: `90a`, `host`.
    pub arch: String,
    /// Every place, in order.
    pub steps: Vec<Step>,
    /// Where it was found.
    pub from: Option<Origin>,
    /// What the image that was found was compiled for.
    pub target: Option<Target>,
    /// The pair of versions of `PARBAKE_VERSION_BYPASS` without which that image would not have been taken.
    pub version_bypass: Option<String>,
}

impl Decision {
    pub(crate) fn note(&mut self, place: impl Into<String>, target: Option<Target>, outcome: impl fmt::Display) {
        self.steps.push(Step { place: place.into(), target, outcome: outcome.to_string() });
    }

    /// Notes the verdict on each candidate of a place.
    pub(crate) fn note_all(&mut self, place: &str, trace: Trace) {
        for (target, verdict) in trace {
            match verdict {
                Ok(how) => self.note(place, Some(target), how),
                Err(why) => self.note(place, Some(target), why),
            }
        }
    }

    /// The commands that close the gap.
    #[must_use]
    pub fn remedy(&self) -> String {
        let file = format!("{}-{}.pbk", self.op, self.arch);
        format!(
            "parbake build --arch {} --op {} -o {file}\nthen pass `--bundle {file}` or set PARBAKE_BUNDLES to its absolute path",
            self.arch, self.path
        )
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.spec)?;
        writeln!(f, "  uri         {}", self.uri)?;
        writeln!(f, "  source key  {}", self.source_key.short(16))?;
        writeln!(f, "  runs on     {}", self.runs_on)?;
        for step in &self.steps {
            let target = step.target.map(|t| format!(" {t}")).unwrap_or_default();
            writeln!(f, "  {}{target}: {}", step.place, step.outcome)?;
        }
        match (self.from, self.target) {
            (Some(from), Some(target)) => {
                let bypass = self.version_bypass.as_ref().map(|b| format!(", by version bypass {b}"));
                write!(f, "  → {from}, {target}{}", bypass.unwrap_or_default())
            }
            _ => write!(f, "  → not covered"),
        }
    }
}
