//! What decides between the legal tactics of a call beside its launcher: what is forced, what is blocked, what was tuned.
//!
//! Where nothing is set none of it costs a call more than looking whether something is.

mod blocked;
mod error;
mod forced;
mod machine;
mod tuned;

pub use blocked::Block;
pub(crate) use blocked::{Blocked, Seen};
pub use error::TacticError;
pub(crate) use forced::Forced;
pub(crate) use machine::{machine, module};
pub use tuned::Verdict;
pub(crate) use tuned::{Hit, TunedResults};

use crate::binding::Tactic;
use parbake_model::op::Op;
use std::path::Path;

/// Who chose a tactic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chosen {
    /// The launcher.
    Launcher,
    /// Results of tuning.
    Tuned,
    /// A person, for a diagnosis.
    Forced,
}

impl Chosen {
    /// A word, unless it was the launcher.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Launcher => None,
            Self::Tuned => Some("tuned"),
            Self::Forced => Some("forced"),
        }
    }
}

/// `block=512 rows=1`.
pub(crate) fn words(op: &Op, tactic: &Tactic) -> String {
    let pairs = op.tactics.iter().zip(tactic.0).map(|(t, value)| format!("{}={value}", t.name));
    pairs.collect::<Vec<_>>().join(" ")
}

/// A file that a setting names, up to one byte beyond what is allowed.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, TacticError> {
    use std::io::Read;
    let mut text = Vec::new();
    let opened = std::fs::File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut text));
    opened.map(|_| text).map_err(|source| TacticError::Unreadable { path: path.to_owned(), source })
}
