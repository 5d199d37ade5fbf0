//! Blocklists: kernels that must not be launched, because they hang, crash or compute something else, entry by entry.
//!
//! An entry says of what it is: an op, values of its axes and tactics, targets, and versions of driver, toolkit and library.
//! What it leaves out it does not restrict, and a version that is not known counts as one that is meant. A text of which any
//! part cannot be understood is no blocklist: to pass over an entry is to launch what hangs.

use crate::identity::Spec;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The schema that is written and read.
pub const SCHEMA: u32 = 1;

/// No longer text is read.
pub const MAX_BYTES: usize = 16 << 20;

/// What must not be launched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Blocklist {
    /// The schema.
    pub schema: u32,
    /// The entries; each counts by itself.
    pub entries: Vec<Entry>,
}

/// Kernels of one op that must not be launched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The op's name.
    pub op: String,
    /// Axis → value; an axis that is not named may have any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub axes: BTreeMap<String, String>,
    /// Tactic → value; a tactic that is not named may have any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tactic: BTreeMap<String, u32>,
    /// Where: `host`, or devices of these architectures; empty for everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
    /// Versions of the driver's kernel module, as `nvidia-smi` shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Range>,
    /// Versions of the toolkit that compiled the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolkit: Option<Range>,
    /// Versions of the library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<Range>,
    /// What it does.
    pub what: What,
    /// What a person should know.
    pub reason: String,
    /// Where it was seen; not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

/// What a kernel does that must not be launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// It does not end.
    Hang,
    /// It ends its process, or spoils its context.
    Crash,
    /// It computes something else.
    Wrong,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hang => "hangs",
            Self::Crash => "crashes",
            Self::Wrong => "computes something else",
        })
    }
}

/// Where it was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The GPU, or the processor.
    pub device: String,
    /// The driver's kernel module.
    pub driver: Option<String>,
    /// The library.
    pub library: String,
    /// The shape, as `rows=16 hidden=4096`.
    pub shape: String,
}

/// Versions, from one on and below another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    /// The first that is not meant any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Version>,
}

impl Range {
    /// Whether a version lies in it. One that is not known, or no version, does.
    #[must_use]
    pub fn holds(&self, version: Option<&str>) -> bool {
        let Some(version) = version.and_then(Version::beginning) else { return true };
        self.from.as_ref().is_none_or(|from| *from <= version) && self.below.as_ref().is_none_or(|b| version < *b)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.from, &self.below) {
            (Some(from), Some(below)) => write!(f, "from {from}, below {below}"),
            (Some(from), None) => write!(f, "from {from}"),
            (None, Some(below)) => write!(f, "below {below}"),
            (None, None) => f.write_str("all"),
        }
    }
}

/// Numbers with points between; what is missing at the end counts as 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version(Vec<u64>);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let numbers =
            text.split('.').map(|part| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?);
        let mut numbers = numbers.collect::<Option<Vec<u64>>>()?;
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        Some(Self(numbers))
    }

    /// The numbers that a text begins with: a pre-release counts as its release.
    fn beginning(text: &str) -> Option<Self> {
        Self::parse(text.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.trim_end_matches('.'))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is no version: numbers with points between, as in 570.124"))
    }
}

/// A text that is no blocklist.
#[derive(Debug, thiserror::Error)]
pub enum BlocklistError {
    /// Too long.
    #[error("it is {size} bytes long; at most {MAX_BYTES} are read")]
    TooLong {
        /// Its size.
        size: usize,
    },
    /// Not JSON, or without what a blocklist has.
    #[error("it is not schema and entries in JSON")]
    Malformed(#[source] serde_json::Error),
    /// Written by a version with another schema.
    #[error("it has schema {got}; this library reads schema {SCHEMA}")]
    Schema {
        /// The schema that it states.
        got: u64,
    },
    /// An entry that cannot be understood.
    #[error("entry {number} cannot be understood: {why}")]
    Entry {
        /// Which, from 1.
        number: usize,
        /// Why.
        why: String,
    },
}

impl BlocklistError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Entry { .. } => "PB-2202",
            _ => "PB-2201",
        }
    }
}

impl Entry {
    /// Whether a spec has the values that it names.
    #[must_use]
    pub fn names(&self, spec: &Spec) -> bool {
        self.op == spec.op
            && self.axes.iter().all(|(name, value)| spec.axis(name) == Some(value.as_str()))
            && self.tactic.iter().all(|(name, value)| spec.tactic(name) == Some(*value))
    }

    /// Whether it is about what runs at a target: devices of its architecture, whatever the image is for.
    #[must_use]
    pub fn concerns(&self, target: Target) -> bool {
        let same = |t: &Target| *t == target || (t.arch().is_some() && t.arch() == target.arch());
        self.targets.is_empty() || self.targets.iter().any(same)
    }

    fn check(&self) -> Result<(), String> {
        for (name, range) in [("driver", &self.driver), ("toolkit", &self.toolkit), ("library", &self.library)] {
            if let Some(Range { from: Some(from), below: Some(below) }) = range
                && from >= below
            {
                return Err(format!("no version of the {name} is from {from} on and below {below}"));
            }
        }
        match self.reason.trim().is_empty() {
            true => Err("it has no reason".to_owned()),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.op)?;
        self.axes.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))?;
        self.tactic.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))?;
        let targets: Vec<String> = self.targets.iter().map(Target::to_string).collect();
        if !targets.is_empty() {
            write!(f, " on {}", targets.join(", "))?;
        }
        for (name, range) in [("driver", &self.driver), ("toolkit", &self.toolkit), ("library", &self.library)] {
            if let Some(range) = range {
                write!(f, ", {name} {range}")?;
            }
        }
        Ok(())
    }
}

impl Blocklist {
    /// A list of these entries.
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Self {
        Self { schema: SCHEMA, entries }
    }

    /// The text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("bug: a blocklist is plain data") + "\n"
    }

    /// Reads a text: all of it, or nothing.
    ///
    /// # Errors
    /// A text that is too long, of another schema, or has anything that is not understood.
    pub fn from_json(text: &[u8]) -> Result<Self, BlocklistError> {
        #[derive(Deserialize)]
        struct OnlySchema {
            schema: u64,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Text {
            schema: u32,
            entries: Vec<serde_json::Value>,
        }
        if text.len() > MAX_BYTES {
            return Err(BlocklistError::TooLong { size: text.len() });
        }
        let OnlySchema { schema } = serde_json::from_slice(text).map_err(BlocklistError::Malformed)?;
        if schema != u64::from(SCHEMA) {
            return Err(BlocklistError::Schema { got: schema });
        }
        let Text { schema, entries } = serde_json::from_slice(text).map_err(BlocklistError::Malformed)?;
        let read = |(i, value): (usize, serde_json::Value)| {
            let entry: Result<Entry, _> = serde_json::from_value(value).map_err(|e: serde_json::Error| e.to_string());
            let checked = entry.and_then(|entry| entry.check().map(|()| entry));
            checked.map_err(|why| BlocklistError::Entry { number: i + 1, why })
        };
        let entries = entries.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { schema, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, below: &str) -> Range {
        Range { from: Version::parse(from), below: Version::parse(below) }
    }

    #[test]
    fn a_version_that_is_not_known_is_meant() {
        let range = range("570.86", "570.124.6");
        for (version, holds) in [
            (Some("570.86"), true),
            (Some("570.86.0"), true),
            (Some("570.85.99"), false),
            (Some("570.124"), true),
            (Some("570.124.06"), false),
            (Some("580"), false),
            (Some("570.100-open"), true),
            (Some("R570"), true),
            (None, true),
        ] {
            assert_eq!(range.holds(version), holds, "{version:?}");
        }
        assert!(Range::default().holds(Some("1")));
    }

    #[test]
    fn an_entry_that_is_not_understood_is_named_and_spoils_the_list() {
        let good = r#"{"op":"rmsnorm","tactic":{"rows":8},"what":"hang","reason":"seen"}"#;
        let read = |entry: &str| {
            let text = format!(r#"{{"schema":1,"entries":[{good},{entry}]}}"#);
            Blocklist::from_json(text.as_bytes()).map_err(|e| (e.code(), e.to_string()))
        };
        assert_eq!(read(good).unwrap().entries.len(), 2);
        for (entry, part) in [
            (r#"{"op":"rmsnorm","what":"hang","reason":" "}"#, "no reason"),
            (r#"{"op":"rmsnorm","what":"slow","reason":"x"}"#, "slow"),
            (r#"{"op":"rmsnorm","what":"hang","reason":"x","tactics":{}}"#, "tactics"),
            (r#"{"op":"rmsnorm","what":"hang","reason":"x","targets":["sm_1"]}"#, "sm_1"),
            (r#"{"op":"rmsnorm","what":"hang","reason":"x","driver":{"from":"R570"}}"#, "R570"),
            (r#"{"op":"rmsnorm","what":"hang","reason":"x","driver":{"from":"2","below":"2.0"}}"#, "no version"),
            (r#"{"op":"rmsnorm","what":"hang","reason":"x","toolkit":{"until":"13"}}"#, "until"),
        ] {
            let (code, text) = read(entry).unwrap_err();
            assert!(code == "PB-2202" && text.contains("entry 2") && text.contains(part), "{text}");
        }
        for text in ["", "[]", r#"{"schema":2,"entries":[]}"#, r#"{"schema":1}"#, r#"{"schema":1,"entries":[],"x":1}"#]
        {
            assert_eq!(Blocklist::from_json(text.as_bytes()).unwrap_err().code(), "PB-2201", "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let entry = Entry {
            op: "rmsnorm".into(),
            axes: BTreeMap::from([("dtype".into(), "f32".into())]),
            tactic: BTreeMap::from([("rows".into(), 8)]),
            targets: vec!["sm_90a".parse().unwrap(), Target::Host],
            driver: Some(range("570", "580.1")),
            toolkit: None,
            library: None,
            what: What::Crash,
            reason: "signal 11".into(),
            seen: None,
        };
        let list = Blocklist::new(vec![entry]);
        assert_eq!(Blocklist::from_json(list.to_json().as_bytes()).unwrap(), list);
        let entry = &list.entries[0];
        assert!(entry.concerns("sm_90".parse().unwrap()) && !entry.concerns("sm_100a".parse().unwrap()));
        assert_eq!(entry.to_string(), "rmsnorm dtype=f32 rows=8 on sm_90a, host, driver from 570, below 580.1");
    }
}
