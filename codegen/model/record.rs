//! Recordings: one line of JSON for each spec that a program asked for, with what served it.
//!
//! Many processes may append to one file, and any of them may die. A line is written at once and ends the record, so what
//! a killed process leaves is the beginning of a line, at the end of the file or before the record of another process.

use crate::digest::Digest;
use crate::identity::Spec;
use crate::lock::Locked;
use crate::snippet::Snippet;
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// The schema that is written, and the only one that is read.
pub const SCHEMA: u32 = 1;

/// No longer text is read: two hundred thousand records.
pub const MAX_BYTES: usize = 64 << 20;

/// The longest reason that is written, so that a line stays one small write.
const LONGEST: usize = 600;

/// How every record begins, and nothing within one.
const BEGINNING: &str = "{\"schema\":";

/// A spec that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The op's name.
    pub op: String,
    /// Axis → value, in the op's order.
    pub axes: Vec<(String, String)>,
    /// Tactic → value, in the op's order.
    pub tactic: Vec<(String, u32)>,
    /// The caller's source, if the value of an axis is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<Box<Snippet>>,
    /// Its identity.
    pub spec_id: Digest,
    /// What it was asked for: exactly this device, or `host`.
    pub target: Target,
    /// Where it came from: `bundle`, `store` or `jit`; none if nothing served it.
    pub from: Option<String>,
    /// Why nothing served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The version of the library that wrote the line.
    pub library: String,
}

impl Recorded {
    /// A record of a spec: where it came from, or why from nowhere.
    #[must_use]
    pub fn new(spec: &Spec, target: Target, outcome: Result<String, String>) -> Self {
        let (from, missing) = match outcome {
            Ok(from) => (Some(from), None),
            Err(why) => (None, Some(shortened(why))),
        };
        Self {
            schema: SCHEMA,
            op: spec.op.clone(),
            axes: spec.axes.clone(),
            tactic: spec.tactic.clone(),
            snippet: spec.snippet.clone(),
            spec_id: spec.spec_id,
            target,
            from,
            missing,
            library: crate::VERSION.to_owned(),
        }
    }

    /// The line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("bug: a record is plain data") + "\n"
    }

    /// The spec as a lock names it.
    #[must_use]
    pub fn locked(&self) -> Locked {
        let Self { op, axes, tactic, snippet, spec_id, .. } = self.clone();
        Locked { op, axes, tactic, snippet, spec_id, targets: Vec::new() }
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// What a file of records holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// The records, as they were written.
    pub records: Vec<Recorded>,
    /// The numbers of lines on which somebody who was killed left the beginning of a record.
    pub torn: Vec<usize>,
}

/// A text that is no recording of this schema.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Too long.
    #[error("the recording is {size} bytes long; at most {MAX_BYTES} are read")]
    TooLong {
        /// Its size.
        size: usize,
    },
    /// A line that is no record, and not what a killed process leaves.
    #[error("line {line} is no record")]
    Malformed {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A line that is no text.
    #[error("line {line} is not UTF-8")]
    NoText {
        /// Its number.
        line: usize,
    },
    /// Written by a version with another schema.
    #[error("line {line} has schema {got}; this library reads schema {SCHEMA}")]
    Schema {
        /// Its number.
        line: usize,
        /// The schema that it states.
        got: u32,
    },
}

impl RecordError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "PB-1351",
            Self::Malformed { .. } | Self::NoText { .. } => "PB-1352",
            Self::Schema { .. } => "PB-1353",
        }
    }
}

/// Reads records.
///
/// # Errors
/// A text that is too long, or the first line that is neither a record nor the torn end of one.
pub fn read(text: &[u8]) -> Result<Recording, RecordError> {
    if text.len() > MAX_BYTES {
        return Err(RecordError::TooLong { size: text.len() });
    }
    let mut recording = Recording::default();
    let lines: Vec<&[u8]> = text.split(|&b| b == b'\n').collect();
    for (i, bytes) in lines.iter().enumerate() {
        let (line, last) = (i + 1, i + 1 == lines.len());
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        // A record that was cut within a character is torn, too.
        let words = match std::str::from_utf8(bytes) {
            Ok(words) => words,
            Err(_) if last => {
                recording.torn.push(line);
                continue;
            }
            Err(_) => return Err(RecordError::NoText { line }),
        };
        let record = match parse(words) {
            Ok(record) => record,
            Err(_) if last => {
                recording.torn.push(line);
                continue;
            }
            // Behind what one process did not finish stands what another one wrote then.
            Err(source) => match words.rfind(BEGINNING).filter(|&at| at > 0).map(|at| parse(&words[at..])) {
                Some(Ok(record)) => {
                    recording.torn.push(line);
                    record
                }
                _ => return Err(RecordError::Malformed { line, source }),
            },
        };
        if record.schema != SCHEMA {
            return Err(RecordError::Schema { line, got: record.schema });
        }
        recording.records.push(record);
    }
    Ok(recording)
}

fn parse(line: &str) -> Result<Recorded, serde_json::Error> {
    serde_json::from_str(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(op: &str) -> Recorded {
        let spec = Spec {
            op: op.to_owned(),
            axes: vec![("dtype".to_owned(), "bf16".to_owned())],
            tactic: vec![("block".to_owned(), 64)],
            snippet: None,
            spec_id: Digest::of(op.as_bytes()),
            uri: op.to_owned(),
        };
        Recorded::new(&spec, "sm_90a".parse().unwrap(), Ok("jit".to_owned()))
    }

    #[test]
    fn a_line_survives_a_trip_and_a_gap_says_why() {
        let mut gap = record("b");
        gap = Recorded { from: None, missing: Some("no {\"schema\":1 and\nno end".to_owned()), ..gap };
        let text = record("a").line() + &gap.line();
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with(BEGINNING));
        let read = read(text.as_bytes()).unwrap();
        assert_eq!((read.records, read.torn), (vec![record("a"), gap], vec![]));
        let long = shortened("ä".repeat(1000));
        assert!(long.len() < 700 && long.ends_with('…'));
    }

    #[test]
    fn what_a_killed_process_leaves_is_passed_over_wherever_it_is() {
        let (a, b) = (record("a").line(), record("b").line());
        for cut in 1..a.len() - 1 {
            // At the end of the file, and before what another process appended then.
            let at_end = read((b.clone() + &a[..cut]).as_bytes()).unwrap();
            assert_eq!((at_end.records, at_end.torn), (vec![record("b")], vec![2]), "{cut}");
            let before = read((a[..cut].to_owned() + &b + &a).as_bytes()).unwrap();
            assert_eq!((before.records, before.torn), (vec![record("b"), record("a")], vec![1]), "{cut}");
        }
        // Only the end of the line is missing.
        assert_eq!(read(a.trim_end().as_bytes()).unwrap().torn, Vec::<usize>::new());
        let cut = [b.as_bytes(), b"{\"schema\":1,\"op\":\"\xc3"].concat();
        assert_eq!(read(&cut).unwrap().torn, [2]);
    }

    #[test]
    fn anything_else_that_is_no_record_is_an_error_with_its_line() {
        let good = record("a").line();
        let error = |text: String| read(text.as_bytes()).unwrap_err();
        assert_eq!(error(good.clone() + "nonsense\n" + &good).to_string(), "line 2 is no record");
        assert_eq!(error(good.clone() + "{}\n").code(), "PB-1352");
        assert_eq!(error("{\"schema\":1}\n".to_owned() + &good).code(), "PB-1352");
        let later = good.replace("\"schema\":1", "\"schema\":7");
        assert_eq!(error(later).to_string(), "line 1 has schema 7; this library reads schema 1");
        assert_eq!(read(&[&b"\xff\n"[..], good.as_bytes()].concat()).unwrap_err().code(), "PB-1352");
        assert_eq!(read(&vec![b'\n'; MAX_BYTES + 1]).unwrap_err().code(), "PB-1351");
        assert_eq!(read(b"\n\n").unwrap(), Recording::default());
    }
}
