//! Building in parts: what decides the result, one shard of it, one bundle a target, and the plan as a folder.

use super::{Bake, Baked, Ready, Toolchains, check_output, keys, made_by, params, ready, write};
use crate::output::{Failure, Output};
use crate::text;
use parbake::{Keys, Library};
use parbake_codegen::baking::costs::Costs;
use parbake_codegen::baking::{self, Plan};
use parbake_codegen::parts::{
    self, Label, PLAN_FILE, PlanFile, Planned, Shard, Statement, Unit, UnitFile, divide, places,
};
use parbake_model::bundle::SpecDetails;
use parbake_model::identity::Profile;
use parbake_model::report::Report;
use parbake_model::{Digest, LAUNCH_ABI, Target, VERSION};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is built: all of it into one bundle, unless something else is said.
#[derive(clap::Args)]
pub(crate) struct Parts {
    /// Builds one of N parts of the bundle; `parbake merge` makes the whole of all of them
    #[arg(long, value_name = "K/N", conflicts_with_all = ["split", "plan"])]
    pub(super) shard: Option<Shard>,
    /// Gives each shard as much to do by what compilations took before: the `costs.json` of a store, the same for all
    #[arg(long, value_name = "FILE", requires = "shard")]
    pub(super) costs: Option<PathBuf>,
    /// Writes one bundle a target, `parbake-sm_90a.pbk`, into the folder that `-o` names
    #[arg(long, conflicts_with = "plan")]
    pub(super) split: bool,
    /// Compiles nothing, and writes each compilation as an action of its own into the folder that `-o` names
    #[arg(long, value_name = "FORM")]
    pub(super) plan: Option<Form>,
    /// How the names of bundles begin that are written into a folder
    #[arg(long, value_name = "STEM", default_value = "parbake", value_parser = stem)]
    pub(super) name: String,
}

/// How a plan is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Form {
    /// As JSON only.
    Json,
    /// As JSON and as a file of ninja.
    Ninja,
}

fn stem(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    let plain = !text.is_empty() && !text.starts_with(['.', '-']) && text.chars().all(good);
    if plain { Ok(text.to_owned()) } else { Err("expected letters, digits, `-`, `_`, `.` and `+`".to_owned()) }
}

/// A shard that is to be built.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Which one.
    pub(crate) shard: Shard,
    /// What compilations took before, if it is divided by that.
    pub(crate) costs: Option<PathBuf>,
}

/// The images of a plan, in its order.
pub(super) fn units(
    library: &Library,
    plan: &Plan<'_>,
    toolchains: &Toolchains,
    profile: Profile,
) -> Result<Vec<Unit>, Failure> {
    let unit = |job: &baking::Job<'_>| {
        let Keys { source_key, build_key } = keys(library, job, toolchains, profile)?;
        Ok(Unit { source_key, target: job.target, build_key, uri: job.spec.uri.clone() })
    };
    plan.jobs.iter().map(unit).collect()
}

fn state(plan: &Plan<'_>, units: Vec<Unit>, packers: &BTreeSet<String>, level: i32) -> Statement {
    Statement {
        library: VERSION.to_owned(),
        launch_abi: LAUNCH_ABI,
        targets: plan.targets.clone(),
        provenance: baking::provenance(level, packers),
        skipped: plan.skipped.clone(),
        units,
    }
    .sorted()
}

/// Leaves one shard of a plan, and labels it.
pub(super) fn cut(library: &Library, ready: &mut Ready<'_>, what: &Bake<'_>, cut: &Cut) -> Result<(), Failure> {
    let Ready { plan, toolchains, packers } = ready;
    let units = units(library, plan, toolchains, what.profile)?;
    let key = |unit: &Unit| (unit.source_key, unit.target);
    let places: BTreeMap<(Digest, Target), usize> = units.iter().enumerate().map(|(i, u)| (key(u), i)).collect();
    let whole = state(plan, units, packers, what.level);
    let job_of = |unit: &Unit| places[&key(unit)];
    let costs = cut.costs.as_deref().map(Costs::read).transpose()?;
    let cost = |costs: &Costs, unit: &Unit| {
        let job = &plan.jobs[job_of(unit)];
        costs.estimate(&job.spec, job.target).ms
    };
    let costs: Option<Vec<u64>> = costs.map(|costs| whole.units.iter().map(|unit| cost(&costs, unit)).collect());
    let shards = divide(&whole.units, costs.as_deref(), cut.shard.of);
    let label = Label::new(cut.shard, &whole, &shards);
    let own = whole.units.iter().zip(&shards).filter(|(_, shard)| **shard == cut.shard.number);
    let own: BTreeSet<usize> = own.map(|(unit, _)| job_of(unit)).collect();
    let mut place = 0..;
    plan.jobs.retain(|_| own.contains(&place.next().expect("bug: endless")));
    plan.label = Some(label);
    Ok(())
}

/// Several bundles.
#[derive(Serialize)]
pub(super) struct Split {
    bundles: Vec<Baked>,
    /// Targets that none of the ops exists for.
    without: Vec<Target>,
}

/// One bundle a target: the one that a build for that target alone would write.
pub(super) fn split(
    library: &Library,
    what: &Bake<'_>,
    folder: &Path,
    stem: &str,
    out: Output,
) -> Result<Split, Failure> {
    let whole = super::planned(library, what)?;
    let covered: BTreeSet<Target> = whole.jobs.iter().map(|job| job.target).collect();
    make_folder(folder)?;
    let mut split = Split { bundles: Vec::new(), without: Vec::new() };
    for target in what.targets.iter().copied().collect::<BTreeSet<_>>() {
        if !covered.contains(&target) {
            split.without.push(target);
            continue;
        }
        let output = folder.join(format!("{stem}-{target}.pbk"));
        let one = Bake { targets: &[target], output: &output, cut: None, ..*what };
        let baked = super::bake(library, &one, out)?;
        split.bundles.push(baked);
    }
    Ok(split)
}

impl Split {
    pub(super) fn text(&self) -> String {
        let mut text: String = self.bundles.iter().map(super::text).collect();
        for target in &self.without {
            text += &format!("no bundle for {target}: none of the ops exists for it\n");
        }
        text
    }
}

/// A plan that was written.
#[derive(Serialize)]
pub(super) struct Exported {
    plan: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    ninja: Option<PathBuf>,
    digest: Digest,
    units: usize,
    /// Files that were not there, or had another content.
    written: usize,
    toolchains: BTreeSet<String>,
}

/// Writes a plan as a folder. Files that hold what they should are left alone, so that an engine which looks at times does
/// nothing again.
pub(super) fn export(
    library: &Library,
    what: &Bake<'_>,
    folder: &Path,
    form: Form,
    stem: &str,
) -> Result<Exported, Failure> {
    let Ready { plan, toolchains, packers } = ready(library, what)?;
    for part in ["units", "built"] {
        make_folder(&folder.join(part))?;
    }
    check_output(&folder.join(PLAN_FILE))?;
    let units = units(library, &plan, &toolchains, what.profile)?;
    let mut files: BTreeMap<(Digest, Target), (String, Digest)> = BTreeMap::new();
    let mut written = 0;
    let params = params(library);
    for (job, unit) in plan.jobs.iter().zip(&units) {
        let toolchain = &toolchains[&made_by(job)];
        let op = library.op(&job.op.name)?;
        let toolkit = toolchain.toolkit();
        let packer = toolkit.filter(|_| job.target != Target::Host);
        let packer = packer.map(|toolkit| super::packer(library, job.target, toolkit)).transpose()?;
        let planned = Planned {
            spec: SpecDetails::new(&job.spec, unit.source_key, params(job.op)?, &job.op.options),
            options: job.op.options.clone(),
            toolkit,
            packer: packer.map(|packer| packer.id().to_owned()),
            shim: if job.target == Target::Host { library.host_shim()? } else { BTreeMap::new() },
        };
        let compile = library.plan(op, &job.spec, job.target, &**toolchain, what.profile)?;
        let file = UnitFile::new(planned, compile);
        assert_eq!(file.build_key, unit.build_key, "bug: {} is planned as another build than it is", unit.uri);
        let text = file.to_json();
        written += usize::from(write_if_different(&folder.join(places(&unit.uri, unit.target).0), &text)?);
        files.insert((unit.source_key, unit.target), (toolchain.id().to_owned(), Digest::of(text.as_bytes())));
    }
    let whole = state(&plan, units, &packers, what.level);
    let files: Vec<(String, Digest)> =
        whole.units.iter().map(|unit| files[&(unit.source_key, unit.target)].clone()).collect();
    let plan = PlanFile::new(&whole, &files, &format!("{stem}.pbk"));
    let mut leave = |name: &str, text: &str| -> Result<PathBuf, Report> {
        let path = folder.join(name);
        written += usize::from(write_if_different(&path, text)?);
        Ok(path)
    };
    let ninja = match form {
        Form::Json => None,
        Form::Ninja => Some(leave("build.ninja", &plan.to_ninja())?),
    };
    // Last: whoever finds it finds the rest.
    let path = leave(PLAN_FILE, &plan.to_json())?;
    let toolchains = files.into_iter().map(|(toolchain, _)| toolchain).collect();
    Ok(Exported { plan: path, ninja, digest: plan.digest, units: plan.units.len(), written, toolchains })
}

impl Exported {
    pub(super) fn text(&self) -> String {
        let compilations = text::count(self.units, "compilation");
        let mut text =
            format!("{}: {compilations}, {} written\n", self.plan.display(), text::count(self.written, "file"));
        let folder = self.plan.parent().unwrap_or(Path::new(".")).display();
        if self.ninja.is_some() {
            text += &format!("run them: ninja -C {folder}\n");
        }
        let toolchains: Vec<&str> = self.toolchains.iter().map(String::as_str).collect();
        text + &format!("they need {}\n", toolchains.join(", "))
    }
}

fn write_if_different(path: &Path, text: &str) -> Result<bool, Report> {
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(false);
    }
    write(path, text.as_bytes()).map(|()| true)
}

fn make_folder(folder: &Path) -> Result<(), Report> {
    std::fs::create_dir_all(folder).map_err(|e| super::cannot_write(folder).caused_by(e))
}

/// The level of compression of what a plan is packed into.
pub(super) fn level(plan: &Plan<'_>, level: i32) -> i32 {
    if plan.label.is_some() { parts::PART_LEVEL } else { level }
}

/// What the bundle of a plan says of where it comes from.
pub(super) fn provenance(plan: &Plan<'_>, packers: &BTreeSet<String>, level: i32) -> BTreeMap<String, String> {
    plan.label.as_ref().map_or_else(|| baking::provenance(level, packers), Label::provenance)
}
