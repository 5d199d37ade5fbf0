//! Which artifacts a list of targets asks for.

use crate::parts::Label;
use parbake_model::bundle::Skipped;
use parbake_model::glob::choose;
use parbake_model::identity::Spec;
use parbake_model::lock::{Lock, Locked};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::snippet::BadSnippet;
use parbake_model::target::known_targets;
use parbake_model::{Target, space};
use std::collections::{BTreeMap, BTreeSet};

/// One artifact to make.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Its op.
    pub op: &'a Op,
    /// Its spec.
    pub spec: Spec,
    /// What it is compiled for.
    pub target: Target,
}

/// What a bake makes, and what it leaves out.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// To be made, in canonical order.
    pub jobs: Vec<Job<'a>>,
    /// Left out, with the reason.
    pub skipped: Vec<Skipped>,
    /// The targets asked for, sorted.
    pub targets: Vec<Target>,
    /// Which part of a larger plan it is, if it is one.
    pub label: Option<Label>,
}

impl Plan<'_> {
    /// Keeps what a lock asks for: its specs, each for its own targets.
    fn keep(&mut self, lock: &Lock) {
        let specs: BTreeMap<_, _> = lock.specs.iter().map(|locked| (locked.spec_id, locked)).collect();
        let words: BTreeMap<String, _> = lock.specs.iter().map(|locked| (locked.to_string(), locked)).collect();
        let asked = |locked: Option<&&Locked>, target| locked.is_some_and(|locked| lock.asks(locked, target));
        self.jobs.retain(|job| asked(specs.get(&job.spec.spec_id), job.target));
        self.skipped.retain(|skipped| asked(words.get(&skipped.spec), skipped.target));
    }
}

/// What a lock asks for: of ops all that it names, and the specs with its snippets.
///
/// # Errors
/// As [`plan`]; a snippet that its op cannot take.
pub fn plan_lock<'a>(
    ops: impl IntoIterator<Item = &'a Op>,
    lock: &Lock,
    targets: &[Target],
) -> Result<Plan<'a>, Report> {
    let ops: Vec<&Op> = ops.into_iter().collect();
    let mut plan = plan(ops.iter().copied(), &naming(lock), &Only::new(), targets)?;
    plan.keep(lock);
    for op in &ops {
        for spec in specs_of_snippets(op, lock).map_err(|e| e.report())? {
            let Some(locked) = lock.specs.iter().find(|locked| locked.spec_id == spec.spec_id) else { continue };
            for &target in targets.iter().filter(|target| lock.asks(locked, **target)) {
                match space::check(op, &spec, Some(target)) {
                    Ok(()) => plan.jobs.push(Job { op, spec: spec.clone(), target }),
                    Err(why) => plan.skipped.push(Skipped {
                        op: op.name.clone(),
                        spec: spec.to_string(),
                        target,
                        reason: why.0,
                    }),
                }
            }
        }
    }
    plan.jobs.sort_by_key(|job| ops.iter().position(|op| op.name == job.op.name));
    Ok(plan)
}

/// All specs of an op with any of the snippets that a lock has for it.
pub(super) fn specs_of_snippets(op: &Op, lock: &Lock) -> Result<Vec<Spec>, BadSnippet> {
    let own = lock.specs.iter().filter(|locked| locked.op == op.name).filter_map(|locked| locked.snippet.as_ref());
    let specs = own.collect::<BTreeSet<_>>().into_iter().map(|snippet| space::of_snippet(op, snippet));
    Ok(specs.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Axis → the values wanted. An axis that is not named is baked whole; every tactic always is, so that a launcher that
/// may not compile finds whatever a shape asks for.
pub type Only = BTreeMap<String, Vec<String>>;

/// Expands ops that match a pattern for a list of targets. An op in another language than CUDA C++ is left out, with a
/// reason, unless the pattern names it: what a wildcard takes needs no toolchain but the usual one, on every machine.
///
/// # Errors
/// A pattern of which a part matches no op; an axis or value that none of them has; targets none of which any of them supports.
pub fn plan<'a>(
    ops: impl IntoIterator<Item = &'a Op>,
    pattern: &str,
    only: &Only,
    targets: &[Target],
) -> Result<Plan<'a>, Report> {
    let chosen = choose(pattern, ops.into_iter().map(|op| ((), op))).map_err(|unmatched| {
        let report = Report::new("PB-1111", Class::Usage, format!("`{}` matches no op", unmatched.part));
        let report = report.with("known", unmatched.known.join(", "));
        match unmatched.nearest {
            Some(name) => report.help(format!("did you mean `{name}`?")),
            None => report.help("patterns match `op` or `family/op`; `*` and `?` are wildcards"),
        }
    })?;
    let chosen: Vec<&Op> = chosen.into_iter().map(|((), op)| op).collect();
    for (axis, values) in only {
        let known: BTreeSet<&str> = chosen
            .iter()
            .flat_map(|op| op.axes.iter().filter(|a| &a.name == axis))
            .flat_map(|a| a.values.iter().map(|v| v.value.as_str()))
            .collect();
        if let Some(value) = values.iter().find(|v| !known.contains(v.as_str())) {
            return Err(Report::new("PB-1118", Class::Usage, format!("none of the ops has {axis}={value}"))
                .with(
                    "expected",
                    if known.is_empty() { format!("an axis, not `{axis}`") } else { format!("{known:?}") },
                )
                .with("got", value));
        }
    }
    let wanted = |spec: &Spec| {
        only.iter().all(|(axis, values)| spec.axis(axis).is_none_or(|v| values.iter().any(|wanted| wanted == v)))
    };
    let mut plan = Plan { jobs: Vec::new(), skipped: Vec::new(), targets: targets.to_vec(), label: None };
    // Why a target lacks what others have.
    let mut reasons = BTreeSet::new();
    for op in &chosen {
        let unnamed = unnamed(op, pattern);
        for combination in space::expand([*op], targets).into_iter().filter(|c| wanted(&c.spec)) {
            match combination.skipped.or_else(|| unnamed.clone()) {
                None => plan.jobs.push(Job { op, spec: combination.spec, target: combination.target }),
                Some(reason) => {
                    if space::check(op, &combination.spec, None).is_ok() {
                        reasons.insert(reason.clone());
                    }
                    plan.skipped.push(Skipped {
                        op: op.name.clone(),
                        spec: combination.spec.to_string(),
                        target: combination.target,
                        reason,
                    });
                }
            }
        }
    }
    if plan.jobs.is_empty() {
        let names: Vec<String> = targets.iter().map(Target::to_string).collect();
        if reasons.is_empty() {
            reasons.extend(plan.skipped.iter().map(|s| s.reason.clone()));
        }
        let chosen: Vec<&str> = chosen.iter().map(|op| op.name.as_str()).collect();
        return Err(Report::new(
            "PB-1112",
            Class::Usage,
            "none of the ops supports any of the targets; nothing was built",
        )
        .with("ops", chosen.join(", "))
        .with("targets", names.join(", "))
        .with("reasons", reasons.into_iter().collect::<Vec<_>>().join("; "))
        .help(format!("known architectures: {}", known_targets())));
    }
    Ok(plan)
}

/// The pattern that names the ops of a lock, whatever their language; that of all ops if it has none.
#[must_use]
fn naming(lock: &Lock) -> String {
    let ops: BTreeSet<&str> = lock.specs.iter().map(|spec| spec.op.as_str()).collect();
    if ops.is_empty() { "*".to_owned() } else { ops.into_iter().collect::<Vec<_>>().join(",") }
}

/// Why an op that a pattern matches is left out all the same.
fn unnamed(op: &Op, pattern: &str) -> Option<String> {
    let named = pattern.split(',').map(str::trim).any(|part| part == op.name || part == op.path());
    let why =
        || format!("{} is written in {}: it is baked only where it is named, and by no wildcard", op.name, op.language);
    (!op.language.is_cuda() && !named).then(why)
}
