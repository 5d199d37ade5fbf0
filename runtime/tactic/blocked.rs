//! The blocklists of a process. They are read when the library opens, and asked before an image is loaded: what is in the
//! registry has passed them, so calls pay nothing.

use super::{TacticError, module, read};
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId};
use parbake_model::blocklist::{Blocklist, Entry, MAX_BYTES, What};
use parbake_model::identity::Spec;
use parbake_model::op::Op;
use parbake_model::{Toolkit, VERSION};
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

/// Why a spec must not be launched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Block {
    /// The spec, as a person writes it.
    pub spec: String,
    /// What it would run on, in words.
    pub runs_on: String,
    /// The blocklist.
    pub file: PathBuf,
    /// The entry in it, from 1.
    pub entry: usize,
    /// What it does.
    pub what: What,
    /// The entry's reason.
    pub reason: String,
}

impl Block {
    /// What, where that stands, and why.
    #[must_use]
    pub fn words(&self) -> String {
        format!("it {} ({}, entry {}: {})", self.what, self.file.display(), self.entry, self.reason)
    }
}

#[derive(Debug)]
struct Rule {
    file: usize,
    number: usize,
    op: OpId,
    entry: Entry,
}

/// All entries that are about this library.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    files: Vec<PathBuf>,
    rules: Vec<Rule>,
    /// Registry keys of what calls were refused: files are read once, so it stays so.
    barred: RwLock<HashSet<u64>>,
}

impl Blocked {
    /// Whether a call was refused this kernel before.
    pub(crate) fn barred(&self, key: u64) -> bool {
        !self.rules.is_empty() && self.barred.read().is_ok_and(|barred| barred.contains(&key))
    }

    /// Remembers what a call was refused, and says it once.
    pub(crate) fn bar(&self, key: u64, block: &Block) {
        if self.barred.write().is_ok_and(|mut barred| barred.insert(key)) {
            tracing::warn!(spec = block.spec, why = block.words(), "a tactic is blocked");
        }
    }

    /// Reads all of the files, or none is of use.
    pub(crate) fn read<'a>(
        files: &[PathBuf],
        find: impl Fn(&str) -> Result<(OpId, &'a Op), Error>,
    ) -> Result<Self, TacticError> {
        let mut all = Self { files: files.to_vec(), ..Self::default() };
        for (file, path) in files.iter().enumerate() {
            let list = Blocklist::from_json(&read(path, MAX_BYTES)?);
            let list = list.map_err(|source| TacticError::Blocklist { path: path.clone(), source })?;
            for (i, entry) in list.entries.into_iter().enumerate() {
                // Of other versions it may name what is not there.
                if entry.library.as_ref().is_some_and(|range| !range.holds(Some(VERSION))) {
                    continue;
                }
                let number = i + 1;
                let unknown = |why| TacticError::Entry { path: path.clone(), number, why };
                let (op, def) = find(&entry.op).map_err(|e| unknown(e.to_string()))?;
                known(def, &entry).map_err(unknown)?;
                all.rules.push(Rule { file, number, op, entry });
            }
        }
        Ok(all)
    }

    fn block(&self, rule: &Rule, spec: &Spec, goal: Goal) -> Block {
        Block {
            spec: spec.to_string(),
            runs_on: goal.words(),
            file: self.files.get(rule.file).map_or(Path::new("").to_owned(), PathBuf::clone),
            entry: rule.number,
            what: rule.entry.what,
            reason: rule.entry.reason.clone(),
        }
    }
}

/// Whether an op has what an entry names. The value of an axis that is open may be anybody's.
fn known(op: &Op, entry: &Entry) -> Result<(), String> {
    for (name, value) in &entry.axes {
        let axis =
            op.axes.iter().find(|a| &a.name == name).ok_or_else(|| format!("`{}` has no axis `{name}`", op.name))?;
        if axis.open.is_none() && !axis.values.iter().any(|v| &v.value == value) {
            return Err(format!("axis `{name}` of `{}` has no value `{value}`", op.name));
        }
    }
    for (name, value) in &entry.tactic {
        let tactic = op.tactics.iter().find(|t| &t.name == name);
        let tactic = tactic.ok_or_else(|| format!("`{}` has no tactic `{name}`", op.name))?;
        if !tactic.values.contains(value) {
            return Err(format!("tactic `{name}` of `{}` has no value {value}", op.name));
        }
    }
    Ok(())
}

/// What is known of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// Nothing yet: entries about toolkits wait.
    Spec,
    /// It was, or would be, compiled by this toolkit; for the host by none.
    Image(Option<Toolkit>),
}

impl Library {
    /// Whether a blocklist lets a spec be launched.
    ///
    /// # Errors
    /// [`TacticError::Blocked`] with the first entry that is about it.
    pub(crate) fn allowed(&self, op: OpId, spec: &Spec, goal: Goal, seen: Seen) -> Result<(), Error> {
        let driver = |entry: &Entry| match (&entry.driver, goal) {
            (None, _) => true,
            (Some(range), Goal::Device(..)) => range.holds(module()),
            // No driver takes part on the host; and for a target alone nothing is launched.
            (Some(_), Goal::Host | Goal::Target(_)) => false,
        };
        let toolkit = |entry: &Entry| match (&entry.toolkit, seen) {
            (None, Seen::Spec) => true,
            (Some(range), Seen::Image(toolkit)) => range.holds(toolkit.map(|t| t.to_string()).as_deref()),
            _ => false,
        };
        let about = |rule: &&Rule| {
            let entry = &rule.entry;
            rule.op == op && entry.names(spec) && entry.concerns(goal.target()) && driver(entry) && toolkit(entry)
        };
        match self.blocked.rules.iter().find(about) {
            Some(rule) => Err(TacticError::Blocked(vec![self.blocked.block(rule, spec, goal)]).into()),
            None => Ok(()),
        }
    }

    /// Whether a spec may be wanted at all; what is blocked is told to the loader's log.
    pub(crate) fn wants(&self, op: OpId, spec: &Spec, goal: Goal) -> bool {
        match self.allowed(op, spec, goal, Seen::Spec) {
            Err(Error::Tactic(TacticError::Blocked(blocks))) => {
                for block in blocks {
                    tracing::warn!(uri = spec.uri, why = block.words(), "not prepared: it is blocked");
                }
                false
            }
            _ => true,
        }
    }
}
