//! Dispatch spaces: which specs an op has, and for which targets. A combination is supported, or it is not *because*
//! of something; both are data.

use crate::identity::{Spec, SpecIndex};
use crate::op::{Exclude, Op, Value};
use crate::snippet::{BadSnippet, Snippet};
use crate::target::Target;

/// Why a spec does not exist for a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported(pub String);

/// A spec and a target, and whether the first exists for the second.
#[derive(Clone, Debug)]
pub struct Combination {
    /// The spec.
    pub spec: Spec,
    /// The target.
    pub target: Target,
    /// Why it does not exist, if it does not.
    pub skipped: Option<String>,
}

/// The most combinations that an op may have.
pub const MAX_COMBINATIONS: usize = 1_000_000;

/// The number of combinations of axis and tactic values, legal or not; `usize::MAX` if there are more than that.
#[must_use]
pub fn size(op: &Op) -> usize {
    let counts = op.axes.iter().map(|a| a.values.len()).chain(op.tactics.iter().map(|t| t.values.len()));
    // An empty axis leaves nothing, however many the others make.
    if counts.clone().any(|count| count == 0) { 0 } else { counts.fold(1, usize::saturating_mul) }
}

/// All specs of an op that some target could support, in canonical order, with the reason for each that none can.
pub fn specs(op: &Op) -> impl Iterator<Item = (Spec, Result<(), Unsupported>)> {
    (0..size(op)).map(|i| {
        let spec = Spec::at(op, SpecIndex(i as u32));
        let legal = check(op, &spec, None);
        (spec, legal)
    })
}

/// All specs of an op with a snippet, legal or not, in canonical order.
///
/// # Errors
/// Why the op cannot take it.
pub fn of_snippet(op: &Op, snippet: &Snippet) -> Result<Vec<Spec>, BadSnippet> {
    let axis = snippet.check(op)?;
    let first = axis.values.first().map(|v| v.value.as_str());
    let others = (0..size(op)).map(|i| Spec::at(op, SpecIndex(i as u32)));
    others.filter(|s| s.axis(&axis.name) == first).map(|s| s.with_snippet(op, snippet.clone())).collect()
}

/// All specs with the axis values of one, and its snippet: its tactics, legal or not.
#[must_use]
pub fn alike(op: &Op, spec: &Spec) -> Vec<Spec> {
    let all = match &spec.snippet {
        Some(snippet) => of_snippet(op, snippet).unwrap_or_default(),
        None => specs(op).map(|(spec, _)| spec).collect(),
    };
    all.into_iter().filter(|other| other.axes == spec.axes).collect()
}

/// Whether a spec exists for a target; without a target, whether it exists for any.
///
/// # Errors
/// The reason why it does not.
pub fn check(op: &Op, spec: &Spec, target: Option<Target>) -> Result<(), Unsupported> {
    match target {
        Some(Target::Host) if !op.host => return Err(Unsupported(format!("{} has no host target", op.name))),
        Some(t) if t.arch() < op.since.arch() && t != Target::Host => {
            return Err(Unsupported(format!("{} is written for {} and newer", op.name, op.since)));
        }
        Some(t) => op.language.supports(t).map_err(Unsupported)?,
        None => {}
    }
    let excluded = op.excludes.iter().find(|e| applies(e, spec, target));
    excluded.map_or(Ok(()), |e| Err(Unsupported(e.reason.clone())))
}

fn applies(exclude: &Exclude, spec: &Spec, target: Option<Target>) -> bool {
    let below = match (exclude.below, target) {
        (None, _) => true,
        (Some(_), None | Some(Target::Host)) => false,
        (Some(below), Some(target)) => target.arch() < below.arch(),
    };
    let elsewhere = exclude.except.is_none_or(|only| target.is_some_and(|target| target != only));
    let agrees = |(name, values): (&String, &Vec<Value>)| values.iter().any(|value| has(spec, name, value));
    let spared = !exclude.unless.is_empty() && exclude.unless.iter().all(agrees);
    below && elsewhere && !spared && exclude.when.iter().all(agrees)
}

fn has(spec: &Spec, name: &str, value: &Value) -> bool {
    match value {
        Value::Text(text) => spec.axes.iter().any(|(n, v)| n == name && v == text),
        Value::Number(number) => spec.tactic.iter().any(|(n, v)| n == name && v == number),
    }
}

/// Every combination of the given ops' specs with the given targets, in canonical order: op, spec, target.
#[must_use]
pub fn expand<'a>(ops: impl IntoIterator<Item = &'a Op>, targets: &[Target]) -> Vec<Combination> {
    let mut all = Vec::new();
    for op in ops {
        for i in 0..size(op) {
            let spec = Spec::at(op, SpecIndex(i as u32));
            all.extend(targets.iter().map(|&target| Combination {
                skipped: check(op, &spec, Some(target)).err().map(|u| u.0),
                spec: spec.clone(),
                target,
            }));
        }
    }
    all
}
