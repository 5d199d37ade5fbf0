//! `parbake supports`: whether a spec can be served, and from where.

use crate::output::{Failure, Output};
use crate::select::{Select, Selected};
use crate::text::Table;
use parbake::Error;
use parbake::decision::{Decision, Origin, Step};
use parbake_model::settings::Config;
use serde::Serialize;

/// Says from where a spec would be served: bundle, store or jit; nothing is compiled or loaded.
///
/// Ends with status 1 if it cannot be served.
///
///   parbake supports rmsnorm dtype=bf16 --target 90a --bundle norm.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    select: Select,
}

/// How a spec would be served.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Bundle,
    Store,
    Jit,
    NotCovered,
    Unsupported,
}

impl Answer {
    fn words(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Store => "store",
            Self::Jit => "jit",
            Self::NotCovered => "not covered",
            Self::Unsupported => "unsupported",
        }
    }
}

#[derive(Serialize)]
struct Outcome {
    support: Answer,
    op: String,
    spec: String,
    uri: String,
    runs_on: String,
    /// Why it does not exist.
    reason: Option<String>,
    /// What was looked at.
    searched: Vec<Step>,
    /// The commands that close the gap.
    help: Option<String>,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let Selected { library, op, spec, goal } = args.select.open(config)?;
    let name = library.definition(op).path();
    let outcome = match library.explain(op, &spec, goal) {
        Ok(decision) => found(name, decision),
        Err(Error::Unsupported { spec: words, target, reason }) => Outcome {
            support: Answer::Unsupported,
            op: name,
            spec: words,
            uri: spec.uri,
            runs_on: target,
            reason: Some(reason),
            searched: Vec::new(),
            help: None,
        },
        Err(error) => return Err(error.into()),
    };
    out.show(&outcome, || describe(&outcome));
    match outcome.support {
        Answer::NotCovered | Answer::Unsupported => Err(Failure::shown(Vec::new())),
        _ => Ok(()),
    }
}

fn found(op: String, decision: Decision) -> Outcome {
    let support = match decision.from {
        Some(Origin::Bundle) => Answer::Bundle,
        Some(Origin::Store) => Answer::Store,
        Some(Origin::Jit | Origin::Registry) => Answer::Jit,
        None => Answer::NotCovered,
    };
    let help = (support == Answer::NotCovered).then(|| decision.remedy());
    let Decision { spec, uri, runs_on, steps, .. } = decision;
    Outcome { support, op, spec, uri, runs_on, reason: None, searched: steps, help }
}

fn describe(outcome: &Outcome) -> String {
    let mut text = format!("{}: {} on {}\n", outcome.support.words(), outcome.spec, outcome.runs_on);
    if let Some(reason) = &outcome.reason {
        text += &format!("  {reason}\n");
    }
    // One line is an answer; the gap is what needs the whole search.
    let last = outcome.searched.len().saturating_sub(1);
    let shown = if outcome.support == Answer::NotCovered { 0 } else { last };
    text += &steps(&outcome.searched[shown..]);
    if let Some(help) = &outcome.help {
        text += &format!("help: {}\n", help.replace('\n', "\n  "));
    }
    text
}

/// Every place that was looked at. Places with several candidates have one line each.
pub(super) fn steps(steps: &[Step]) -> String {
    let mut text = String::new();
    for same in steps.chunk_by(|a, b| a.place == b.place) {
        let place = &same[0].place;
        match same {
            [Step { target: None, outcome, .. }] => text += &format!("  {place}: {outcome}\n"),
            [Step { target: Some(target), outcome, .. }] => text += &format!("  {place} {target}: {outcome}\n"),
            many => {
                let mut table = Table::plain();
                for step in many {
                    table.row(["", &step.target.map_or("–".to_owned(), |t| t.to_string()), &step.outcome]);
                }
                text += &format!("  {place}\n{}", table.text());
            }
        }
    }
    text
}
