//! What can go wrong with files of blocked and tuned tactics, and with those that are forced.

use super::Block;
use parbake_model::blocklist::BlocklistError;
use parbake_model::report::{Class, Report};
use parbake_model::tuned::TunedError;
use std::io;
use std::path::PathBuf;

/// An error about tactics.
#[derive(Debug, thiserror::Error)]
pub enum TacticError {
    /// A file that a setting names cannot be read.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is no blocklist.
    #[error("{} is no blocklist", .path.display())]
    Blocklist {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: BlocklistError,
    },
    /// An entry of a blocklist names what the library does not have.
    #[error("entry {number} of blocklist {}: {why}", .path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        number: usize,
        /// What is not there.
        why: String,
    },
    /// Everything that could serve is blocked.
    #[error("{}", blocked(.0))]
    Blocked(Vec<Block>),
    /// A file holds no tuned results.
    #[error("{} holds no tuned results", .path.display())]
    Tuned {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: TunedError,
    },
    /// A forced tactic is none of those that a call may take.
    #[error("`{op}` was forced to take {forced}, which is not legal for these arguments")]
    NotLegal {
        /// The op.
        op: String,
        /// What was forced.
        forced: String,
        /// What there is.
        legal: String,
    },
    /// What is to be measured with does not measure there.
    #[error("{what}")]
    Timer {
        /// What is wrong.
        what: String,
        /// What there is.
        expected: &'static str,
    },
}

fn blocked(blocks: &[Block]) -> String {
    match blocks {
        [one] => format!("{} is blocked on {}: it {}", one.spec, one.runs_on, one.what),
        several => format!("all {} tactics that could serve are blocked", several.len()),
    }
}

impl TacticError {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let new = |code, class| Report::new(code, class, self.to_string());
        match self {
            Self::Unreadable { source, .. } => new("PB-2200", Class::Environment)
                .caused_by(source)
                .help("name a file that can be read in PARBAKE_BLOCKLIST or PARBAKE_TUNED, or unset it"),
            Self::Blocklist { source, .. } => new(source.code(), Class::Failed)
                .caused_by_chain(source)
                .help("nothing is launched with a blocklist that is not understood; docs/tune.md has the format"),
            Self::Entry { .. } => new("PB-2203", Class::Failed)
                .with("expected", "an op, axes and tactics that `parbake ops` shows")
                .help("if the entry is about another version, give it a range: \"library\": { \"below\": \"…\" }"),
            Self::Blocked(blocks) => blocks
                .iter()
                .fold(new("PB-2204", Class::Failed), |report, b| report.with(b.spec.clone(), b.words()))
                .help("other tactics or axes may serve: parbake ops"),
            Self::Tuned { source, .. } => new(source.code(), Class::Failed)
                .caused_by_chain(source)
                .help("write it again: parbake tune … --out FILE"),
            Self::NotLegal { legal, .. } => new("PB-2220", Class::Usage)
                .with("expected", legal)
                .help("unset PARBAKE_TACTICS, which is for diagnosis"),
            Self::Timer { expected, .. } => {
                new("PB-2221", Class::Usage).with("expected", expected).help("`--timer` or PARBAKE_TUNE_TIMER names it")
            }
        }
    }
}
