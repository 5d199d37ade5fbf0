//! `parbake why`: the whole decision about a spec, and what its identities are made of.

use super::supports::steps;
use crate::output::{Failure, Output};
use crate::select::{Select, Selected};
use crate::text::Table;
use parbake::decision::{Decision, Origin, Step};
use parbake::{Explanation, Identities};
use parbake_model::identity::Spec;
use parbake_model::settings::Config;
use parbake_model::{Key, Target};

/// Explains from where a spec would be served and why not from elsewhere, with its identities field by field.
///
///   parbake why rmsnorm dtype=bf16 --target 90a --bundle norm.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    select: Select,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let Selected { library, op, spec, goal } = args.select.open(config)?;
    let explanation = library.why(op, &spec, goal)?;
    out.show(&explanation, || describe(&explanation, &spec));
    Ok(())
}

fn describe(explanation: &Explanation, spec: &Spec) -> String {
    let mut head = Table::plain();
    head.row(["uri", &spec.uri]);
    if let Some(decision) = &explanation.decision {
        head.row(["runs on", &decision.runs_on]);
    }
    if let Some(forced) = &explanation.forced {
        head.row(["forced", &format!("{forced}, by PARBAKE_TACTICS (diagnosis)")]);
    }
    let mut text = format!("{spec}\n{}", head.text());
    match (&explanation.decision, &explanation.unsupported) {
        (Some(decision), _) => {
            text += &format!("\nlooked up\n{}  → {}\n", steps(&decision.steps), result(decision));
        }
        (None, Some(why)) => text += &format!("\nnot looked up\n  {why}\n"),
        (None, None) => {}
    }
    if let Some(help) = &explanation.help {
        text += &format!("help: {}\n", help.replace('\n', "\n  "));
    }
    let Identities { spec_id, source_key, build_key, no_build_key } = &explanation.identities;
    text += &fields("spec id", spec_id, "names the spec; stays when kernels are edited");
    text += &fields("source key", source_key, "what an image in a bundle must have been compiled from");
    match (build_key, no_build_key) {
        (Some(key), _) => text += &fields("build key", key, "what an entry of the store must be"),
        (None, Some(why)) => text += &format!("\nbuild key\n  {why}\n"),
        (None, None) => {}
    }
    text
}

fn result(decision: &Decision) -> String {
    match (decision.from, decision.target) {
        (Some(Origin::Jit), Some(target)) => format!("it would be compiled for {target}"),
        (Some(Origin::Bundle), Some(target)) => format!("bundle, {target}, of {}", chosen(decision, target)),
        (Some(from), Some(target)) => format!("{from}, {target}"),
        _ => "not covered".to_owned(),
    }
}

/// The bundle that was taken, among several: tiers are asked in order until one has an image that fits, and of equally
/// good ones the first is taken. Its name says so if a version bypass was needed.
fn chosen(decision: &Decision, target: Target) -> &str {
    let fits = |step: &&Step| step.miss.is_none() && step.target == Some(target);
    decision.steps.iter().find(fits).map_or("bundle", |step| step.place.as_str())
}

fn fields(name: &str, key: &Key, what: &str) -> String {
    let mut table = Table::plain();
    for (name, value) in &key.fields {
        table.row([name, value]);
    }
    format!("\n{name}  {}\n  {what}; {} of\n{}", key.digest, key.domain, table.text())
}
