//! Reads `op.toml`. Every complaint points at a line and column; all of them are collected, not the first only.

mod signature;
mod space;
mod trace;

use crate::{names, peers};
use parbake_model::op::{Axis, Op};
use parbake_model::snippet;
use parbake_model::target::{Suffix, Target};
use std::fmt;
use toml::de::{DeTable, DeValue};

/// The longest URI: it is part of file names, which end at 255 bytes.
const MAX_URI: usize = 160;

/// A place in an `op.toml` and what is wrong there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

/// An `op.toml` that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadDefinition {
    /// The file, relative to the kernel tree.
    pub file: String,
    /// What is wrong, sorted by place.
    pub complaints: Vec<Complaint>,
}

impl BadDefinition {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "PB-1101"
    }
}

impl fmt::Display for BadDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.complaints.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:{}:{}: {}", self.file, c.line, c.column, c.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for BadDefinition {}

/// Parses and checks one `op.toml`. `file` is its path below the kernel tree: `norm/rmsnorm/op.toml`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(file: &str, text: &str) -> Result<Op, BadDefinition> {
    let place = |offset: usize| {
        let before = &text[..offset.min(text.len())];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    };
    let refuse = |mut found: Vec<(usize, String)>| {
        found.sort();
        let complaints = found.into_iter().map(|(offset, message)| {
            let (line, column) = place(offset);
            Complaint { line, column, message }
        });
        Err(BadDefinition { file: file.to_owned(), complaints: complaints.collect() })
    };
    let op: Op = match toml::from_str(text) {
        Ok(op) => op,
        Err(e) => return refuse(vec![(e.span().map_or(0, |s| s.start), e.message().to_owned())]),
    };
    let tree = DeTable::parse(text).expect("bug: text was parsed a moment ago");
    let mut found = Vec::new();
    check(&op, file, &mut |path, message| found.push((locate(tree.get_ref(), path).unwrap_or(0), message)));
    if found.is_empty() { Ok(op) } else { refuse(found) }
}

/// Where a value is written, by path: `["axis", "1", "values"]`.
fn locate(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first)?;
    if rest.is_empty() {
        return Some(key.span().start);
    }
    let mut at = value.span().start;
    let mut value = value.get_ref();
    for part in rest {
        match value {
            DeValue::Array(items) => {
                let item = items.get(part.parse::<usize>().ok()?)?;
                at = item.span().start;
                value = item.get_ref();
            }
            DeValue::Table(table) => {
                let (key, inner) = table.iter().find(|(key, _)| key.get_ref() == part)?;
                at = key.span().start;
                value = inner.get_ref();
            }
            _ => break,
        }
    }
    Some(at)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// What may stand before a value in a URI, which becomes a file's and a symbol's name.
fn is_prefix(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// The length of the longest URI of an op.
fn longest_uri(op: &Op) -> usize {
    let snippet = |a: &Axis| a.open.as_ref().map(|_| snippet::MAX_NAME + 1 + 12);
    let longest = |a: &Axis| a.values.iter().map(|v| v.value.len()).max().max(snippet(a));
    let axes = op.axes.iter().map(|a| (&a.prefix, longest(a)));
    let tactics = op.tactics.iter().map(|t| (&t.prefix, t.values.iter().map(|v| v.to_string().len()).max()));
    let parts = axes.chain(tactics).map(|(prefix, longest)| 1 + prefix.len() + longest.unwrap_or(0));
    op.name.len() + parts.sum::<usize>() + 1 + 12
}

fn check(op: &Op, file: &str, wrong: &mut dyn FnMut(&[&str], String)) {
    let (folder_family, folder_name) =
        file.strip_suffix("/op.toml").and_then(|f| f.rsplit_once('/')).unwrap_or(("", ""));
    if op.name != folder_name || !is_name(&op.name) {
        wrong(&["name"], format!("`name` is `{}`, but the folder is `{folder_name}`", op.name));
    }
    if op.family != folder_family || !is_name(&op.family) {
        wrong(&["family"], format!("`family` is `{}`, but the folder above is `{folder_family}`", op.family));
    }
    if op.host
        && let Err(why) = op.language.supports(Target::Host)
    {
        wrong(&["host"], why);
    }
    if !is_name(&op.params) {
        wrong(&["params"], format!("`{}` is not the name of a struct: lower-case letters, digits and `_`", op.params));
    }
    if longest_uri(op) > MAX_URI {
        wrong(&["name"], format!("URIs of {} characters; at most {MAX_URI}", longest_uri(op)));
    }
    if op.summary.trim().is_empty() {
        wrong(&["summary"], "`summary` is empty".into());
    }
    if !matches!(op.since, Target::Sm(_, Suffix::Baseline)) {
        wrong(&["since"], format!("`since` names the oldest architecture without a suffix, got `{}`", op.since));
    }
    space::check(op, wrong);
    signature::check(op, wrong);
    names::check(op, wrong);
    peers::check(op, wrong);
    trace::check(op, wrong);
}

#[cfg(test)]
pub(crate) mod tests;
