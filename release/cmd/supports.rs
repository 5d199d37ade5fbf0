//! `parbake supports`: whether a spec can be served, and from where.

use crate::output::{Failure, Output};
use crate::select::{Select, Selected};
use crate::text::Table;
use parbake::decision::Step;
use parbake::{Coverage, Support};
use parbake_model::settings::Config;

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

fn words(support: Support) -> &'static str {
    match support {
        Support::Bundle => "bundle",
        Support::Store => "store",
        Support::Jit => "jit",
        Support::NotCovered => "not covered",
        Support::Blocked => "blocked",
        Support::Unsupported => "unsupported",
    }
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let Selected { library, op, spec, goal } = args.select.open(config)?;
    let outcome = library.supports(op, &spec, goal)?;
    out.show(&outcome, || describe(&outcome));
    match outcome.support {
        Support::NotCovered | Support::Blocked | Support::Unsupported => Err(Failure::shown(Vec::new())),
        _ => Ok(()),
    }
}

fn describe(outcome: &Coverage) -> String {
    let mut text = format!("{}: {} on {}\n", words(outcome.support), outcome.spec, outcome.runs_on);
    if let Some(reason) = &outcome.reason {
        text += &format!("  {reason}\n");
    }
    // One line is an answer; the gap is what needs the whole search.
    let last = outcome.searched.len().saturating_sub(1);
    let shown = if outcome.support == Support::NotCovered { 0 } else { last };
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
