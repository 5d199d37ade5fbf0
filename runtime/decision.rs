//! Where a kernel came from, or why there is none: every candidate with its verdict.

use parbake_model::verdict::{Reject, Trace};
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

/// Why a candidate, or a whole place, did not serve. Counted in [`crate::Stats`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Miss {
    /// It is not there.
    NotCovered,
    /// It is there, made from other sources.
    SourceChanged,
    /// It is for other devices.
    WrongTarget,
    /// The driver is too old for it.
    DriverTooOld,
    /// It is a build of another profile.
    OtherProfile,
    /// It was made for another version of the library.
    OtherVersion,
    /// It failed verification.
    Integrity,
    /// It could not be read.
    Unreadable,
    /// Others may write there: what is found there is not run.
    Untrusted,
    /// The place, or this way of serving, is switched off by a setting.
    SwitchedOff,
    /// There is no compiler for it here.
    NoToolchain,
    /// A blocklist bars it.
    Blocked,
}

impl Miss {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::NotCovered,
        Self::SourceChanged,
        Self::WrongTarget,
        Self::DriverTooOld,
        Self::OtherProfile,
        Self::OtherVersion,
        Self::Integrity,
        Self::Unreadable,
        Self::Untrusted,
        Self::SwitchedOff,
        Self::NoToolchain,
        Self::Blocked,
    ];

    fn of(reject: Reject) -> Self {
        match reject {
            Reject::PtxIsa { .. } | Reject::DriverMajor { .. } | Reject::DriverTooOld { .. } => Self::DriverTooOld,
            Reject::PtxNotAllowed { .. } => Self::SwitchedOff,
            _ => Self::WrongTarget,
        }
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCovered => "not covered",
            Self::SourceChanged => "source changed",
            Self::WrongTarget => "wrong target",
            Self::DriverTooOld => "driver too old",
            Self::OtherProfile => "other profile",
            Self::OtherVersion => "other version",
            Self::Integrity => "integrity",
            Self::Unreadable => "unreadable",
            Self::Untrusted => "not trusted",
            Self::SwitchedOff => "switched off",
            Self::NoToolchain => "no toolchain",
            Self::Blocked => "blocked",
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
    /// Why it did not serve; none if it did, or would.
    pub miss: Option<Miss>,
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
    /// What a bake that covers it is given: `90a`, `host`, `compute_90`.
    pub arch: String,
    /// Every place, in order.
    pub steps: Vec<Step>,
    /// Where it was found.
    pub from: Option<Origin>,
    /// What the image that was found was compiled for.
    pub target: Option<Target>,
    /// The pair of versions of `PARBAKE_VERSION_BYPASS` without which that image would not have been taken.
    pub version_bypass: Option<String>,
    /// The name of the snippet that is its value of an axis, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// What would bring the compiler that is missing here.
    pub toolchain: Vec<String>,
}

impl Decision {
    /// Notes what serves.
    pub(crate) fn note(&mut self, place: impl Into<String>, target: Option<Target>, outcome: impl fmt::Display) {
        self.steps.push(Step { place: place.into(), target, miss: None, outcome: outcome.to_string() });
    }

    /// Notes what does not serve, and why.
    pub(crate) fn miss(
        &mut self,
        place: impl Into<String>,
        target: Option<Target>,
        miss: Miss,
        outcome: impl fmt::Display,
    ) {
        self.steps.push(Step { place: place.into(), target, miss: Some(miss), outcome: outcome.to_string() });
    }

    /// Why each place had nothing, in a line.
    #[must_use]
    pub fn missed(&self) -> String {
        let misses = self.steps.iter().filter_map(|step| Some((&step.place, step.target, step.miss?)));
        let words = misses.map(|(place, target, miss)| match target {
            Some(target) => format!("{place} {target}: {miss}"),
            None => format!("{place}: {miss}"),
        });
        words.collect::<Vec<_>>().join("; ")
    }

    /// Notes the verdict on each candidate of a place.
    pub(crate) fn note_all(&mut self, place: &str, trace: Trace) {
        for (target, verdict) in trace {
            match verdict {
                Ok(how) => self.note(place, Some(target), how),
                Err(why) => self.miss(place, Some(target), Miss::of(why), why),
            }
        }
    }

    /// The commands that close the gap.
    #[must_use]
    pub fn remedy(&self) -> String {
        let file = format!("{}-{}.pbk", self.op, self.arch);
        remedy(std::slice::from_ref(self), &file)
    }
}

/// What closes all of these gaps: a compiler if none is here, else one bundle.
pub(crate) fn remedy(gaps: &[Decision], file: &str) -> String {
    use std::collections::BTreeSet;
    let joined = |parts: BTreeSet<&str>| parts.into_iter().collect::<Vec<_>>().join(",");
    let install: BTreeSet<&str> = gaps.iter().flat_map(|gap| &gap.toolchain).map(String::as_str).collect();
    let mut lines: Vec<String> = install.iter().map(|&line| line.to_owned()).collect();
    if !gaps.is_empty() {
        let archs = joined(gaps.iter().map(|gap| gap.arch.as_str()).collect());
        let ops = joined(gaps.iter().map(|gap| gap.path.as_str()).collect());
        let snippets = joined(gaps.iter().filter_map(|gap| gap.snippet.as_deref()).collect());
        let build = match snippets.is_empty() {
            true => format!("parbake build --arch {archs} --op {ops} -o {file}"),
            false => {
                lines.push(format!("set PARBAKE_RECORD=asked.jsonl once: it keeps the source of {snippets}"));
                format!("parbake lock asked.jsonl -o asked.lock && parbake build --lock asked.lock -o {file}")
            }
        };
        lines.push(if install.is_empty() { build } else { format!("or, where there is a compiler: {build}") });
        lines.push(format!("then pass `--bundle {file}` or set PARBAKE_BUNDLES to its absolute path"));
    }
    lines.join("\n")
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
