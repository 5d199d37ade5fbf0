//! `parbake expand`: what a bake would build, and what it leaves out.

use crate::output::{Failure, Output};
use crate::select;
use crate::text::{self, Table};
use parbake::Library;
use parbake_codegen::baking::{self, Plan};
use parbake_model::Target;
use parbake_model::settings::Config;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Shows what a bake would build for some architectures, and what it skips and why; nothing is compiled.
///
///   parbake expand --arch 80,90a,100f --op 'norm/*'
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Architectures such as `80,90a,100f,host`; PARBAKE_ARCHS if this is not given
    #[arg(long, value_name = "LIST")]
    arch: Option<String>,
    #[command(flatten)]
    ops: select::Ops,
    /// Lists every combination
    #[arg(long)]
    all: bool,
}

#[derive(Serialize)]
struct Row {
    op: String,
    target: Target,
    built: usize,
    skipped: usize,
}

/// A reason, and what it keeps out.
#[derive(Serialize)]
struct Reason<'a> {
    reason: &'a str,
    combinations: usize,
    ops: BTreeSet<&'a str>,
    targets: BTreeSet<Target>,
}

/// A spec on a target.
#[derive(Serialize)]
struct Combination<'a> {
    spec: String,
    /// None if it is skipped.
    uri: Option<&'a str>,
    target: Target,
    skipped: Option<&'a str>,
}

#[derive(Serialize)]
struct Expansion<'a> {
    targets: &'a [Target],
    built: usize,
    skipped: usize,
    rows: Vec<Row>,
    reasons: Vec<Reason<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    combinations: Option<Vec<Combination<'a>>>,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    let targets = select::targets(args.arch.as_deref(), &config)?;
    let only = args.ops.only()?;
    config = config.without_bundles();
    let library = Library::open(config)?;
    let plan = baking::plan(library.ops().map(|(_, op)| op), &args.ops.op, &only, &targets)?;
    let expansion = Expansion {
        targets: &plan.targets,
        built: plan.jobs.len(),
        skipped: plan.skipped.len(),
        rows: rows(&plan),
        reasons: reasons(&plan),
        combinations: args.all.then(|| combinations(&plan)),
    };
    out.show(&expansion, || describe(&expansion));
    Ok(())
}

fn rows(plan: &Plan<'_>) -> Vec<Row> {
    let mut counts: BTreeMap<(&str, Target), (usize, usize)> = BTreeMap::new();
    for job in &plan.jobs {
        counts.entry((&job.op.name, job.target)).or_default().0 += 1;
    }
    for skipped in &plan.skipped {
        counts.entry((&skipped.op, skipped.target)).or_default().1 += 1;
    }
    let row = |((op, target), (built, skipped)): ((&str, Target), _)| Row { op: op.to_owned(), target, built, skipped };
    counts.into_iter().map(row).collect()
}

/// The most frequent first.
fn reasons<'a>(plan: &'a Plan<'_>) -> Vec<Reason<'a>> {
    let mut reasons: Vec<Reason<'_>> = Vec::new();
    for skipped in &plan.skipped {
        let found = reasons.iter().position(|r| r.reason == skipped.reason);
        let at = found.unwrap_or_else(|| {
            let (ops, targets) = (BTreeSet::new(), BTreeSet::new());
            reasons.push(Reason { reason: &skipped.reason, combinations: 0, ops, targets });
            reasons.len() - 1
        });
        reasons[at].combinations += 1;
        reasons[at].ops.insert(&skipped.op);
        reasons[at].targets.insert(skipped.target);
    }
    reasons.sort_by_key(|r| std::cmp::Reverse(r.combinations));
    reasons
}

fn combinations<'a>(plan: &'a Plan<'_>) -> Vec<Combination<'a>> {
    let built = plan.jobs.iter().map(|job| Combination {
        spec: job.spec.to_string(),
        uri: Some(&job.spec.uri),
        target: job.target,
        skipped: None,
    });
    let skipped = plan.skipped.iter().map(|s| Combination {
        spec: s.spec.clone(),
        uri: None,
        target: s.target,
        skipped: Some(&s.reason),
    });
    built.chain(skipped).collect()
}

fn describe(expansion: &Expansion<'_>) -> String {
    let mut text = String::new();
    if let Some(combinations) = &expansion.combinations {
        let mut table = Table::new(&["TARGET", "SPEC", "URI, OR WHY IT IS SKIPPED"]);
        for c in combinations {
            let what = c.uri.map_or_else(|| format!("– {}", c.skipped.unwrap_or_default()), str::to_owned);
            table.row([c.target.to_string(), c.spec.clone(), what]);
        }
        text += &table.text();
        text.push('\n');
    }
    let mut table = Table::new(&["OP", "TARGET", ">BUILT", ">SKIPPED"]);
    for row in &expansion.rows {
        table.row([row.op.clone(), row.target.to_string(), row.built.to_string(), row.skipped.to_string()]);
    }
    table.row(["total", "", &expansion.built.to_string(), &expansion.skipped.to_string()]);
    text += &table.text();
    if !expansion.reasons.is_empty() {
        let mut table = Table::new(&[">SKIPPED", "WHERE", "BECAUSE"]);
        for reason in &expansion.reasons {
            let everywhere = reason.targets.len() == expansion.targets.len();
            let place = if everywhere { "every target".to_owned() } else { text::list(&reason.targets) };
            table.row([&reason.combinations.to_string(), &place, reason.reason]);
        }
        text += &format!("\n{}", table.text());
    }
    text
}
