//! `parbake why`: the whole decision about a spec, and what its identities are made of.

use super::supports::steps;
use crate::output::{Failure, Output};
use crate::select::{Select, Selected};
use crate::text::Table;
use parbake::decision::{Decision, Origin, Step};
use parbake::{Error, Goal, Library};
use parbake_codegen::artifact;
use parbake_model::identity::Spec;
use parbake_model::op::Op;
use parbake_model::settings::Config;
use parbake_model::{Key, Target};
use serde::Serialize;

/// Explains from where a spec would be served and why not from elsewhere, with its identities field by field.
///
///   parbake why rmsnorm dtype=bf16 --target 90a --bundle norm.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    select: Select,
}

/// The three identities. The third needs a toolchain.
#[derive(Serialize)]
struct Identities {
    spec_id: Key,
    source_key: Key,
    build_key: Option<Key>,
    /// Why there is no build key.
    no_build_key: Option<String>,
}

#[derive(Serialize)]
struct Explanation {
    op: String,
    spec: String,
    uri: String,
    /// None if the spec does not exist for the target.
    decision: Option<Decision>,
    /// Why it does not exist.
    unsupported: Option<String>,
    /// The commands that close a gap.
    help: Option<String>,
    identities: Identities,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let Selected { library, op, spec, goal } = args.select.open(config)?;
    let def = library.definition(op);
    let source_key = spec.source_key(def, library.sources_digest(op)?);
    let (decision, unsupported) = match library.explain(op, &spec, goal) {
        Ok(decision) => (Some(decision), None),
        Err(e @ Error::Unsupported { .. }) => (None, Some(e.to_string())),
        Err(error) => return Err(error.into()),
    };
    let (build_key, no_build_key) = match build_key(&library, def, &source_key, goal) {
        Ok(key) => (Some(key), None),
        Err(why) => (None, Some(why)),
    };
    let explanation = Explanation {
        op: def.path(),
        spec: spec.to_string(),
        uri: spec.uri.clone(),
        help: decision.as_ref().filter(|d| d.from.is_none()).map(Decision::remedy),
        decision,
        unsupported,
        identities: Identities { spec_id: spec.id_key(def), source_key, build_key, no_build_key },
    };
    out.show(&explanation, || describe(&explanation, &spec));
    Ok(())
}

fn build_key(library: &Library, op: &Op, source_key: &Key, goal: Goal) -> Result<Key, String> {
    if !library.config().jit {
        return Err("not asked for: with JIT off any build of these sources that fits is taken".to_owned());
    }
    let toolchain = library.toolchain_for(goal).map_err(|report| report.what)?;
    let profile = library.config().profile;
    Ok(artifact::build_key(&*toolchain, op, source_key.digest, goal.target(), profile))
}

fn describe(explanation: &Explanation, spec: &Spec) -> String {
    let mut head = Table::plain();
    head.row(["uri", &spec.uri]);
    if let Some(decision) = &explanation.decision {
        head.row(["runs on", &decision.runs_on]);
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
