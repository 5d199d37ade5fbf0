//! `parbake merge`: one bundle of several.

use super::{build, inspect};
use crate::output::{Failure, Output};
use crate::seal::Trust;
use crate::text;
use parbake_codegen::baking::on_threads;
use parbake_codegen::parts::{self, MAX_PLAN, Merged, Part, PlanFile};
use parbake_model::bundle::BundleError;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Target};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Packs the images of several bundles into one.
///
/// Shards of a plan (`parbake build --shard`) must all be there, each once, and give the very bytes of a single build.
/// Other bundles must be of one library version. Every byte is verified first; no compiler is needed.
///
/// With `--plan` what is there must make up that plan: by default the outputs that it names, beside it.
///
///   parbake merge shard-*.pbk -o norm.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bundles
    #[arg(required_unless_present = "plan", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The `plan.json` that `parbake build --plan` wrote
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// The bundle to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Compression, 1 to 22 [default: that of the plan, else as `parbake build`]
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=22))]
    level: Option<i32>,
}

#[derive(Serialize)]
struct Done {
    bundle: PathBuf,
    merged: usize,
    bytes: usize,
    images: usize,
    specs: usize,
    targets: Vec<Target>,
    /// The plan that these are all shards or units of.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Digest>,
    seconds: f64,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let start = Instant::now();
    build::check_output(&args.output)?;
    let plan = args.plan.as_deref().map(|path| Ok::<_, Report>((path, plan(path)?))).transpose()?;
    let files = match &plan {
        Some((path, plan)) if args.files.is_empty() => outputs(path, plan),
        _ => args.files,
    };
    let parts = open(&files, &config)?;
    let statement = plan.map(|(_, plan)| plan.statement());
    let merged = parts::merge(&parts, statement.as_ref(), args.level, config.jobs)?;
    build::write(&args.output, &merged.bytes)?;
    let Merged { bytes, images, specs, targets, plan } = merged;
    let (bundle, merged, bytes) = (args.output, parts.len(), bytes.len());
    let done = Done { bundle, merged, bytes, images, specs, targets, plan, seconds: start.elapsed().as_secs_f64() };
    out.show(&done, || {
        format!(
            "{}: {} of {} for {} in {} bytes, from {}, {:.1} s",
            done.bundle.display(),
            text::count(done.images, "image"),
            text::count(done.specs, "spec"),
            text::list(&done.targets),
            done.bytes,
            text::count(done.merged, "bundle"),
            done.seconds
        )
    });
    Ok(())
}

fn plan(path: &Path) -> Result<PlanFile, Report> {
    let refuse =
        |e| Report::new("PB-3174", Class::Environment, format!("cannot read `{}`", path.display())).caused_by(e);
    let mut text = Vec::new();
    // One byte more than is accepted, so that a longer file is told from one that fits.
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_PLAN as u64 + 1).read_to_end(&mut text));
    read.map_err(refuse)?;
    PlanFile::from_json(&text, &path.display().to_string())
}

/// What the compilations of a plan wrote. Which are not there is told by the merge, by name.
fn outputs(path: &Path, plan: &PlanFile) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(""));
    plan.units.iter().map(|unit| folder.join(&unit.output)).filter(|path| path.exists()).collect()
}

/// Opens bundles and verifies every byte of them; all that are wrong are reported. A file named twice is read once.
fn open(files: &[PathBuf], config: &Config) -> Result<Vec<Part>, Failure> {
    let trust = Trust::of(config)?;
    let mut seen = BTreeSet::new();
    let files = files.iter().filter(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| (*path).clone())));
    let files: Vec<&PathBuf> = files.collect();
    let (mut parts, mut wrong) = (Vec::new(), Vec::new());
    for opened in on_threads(config.jobs, &files, &|path: &&PathBuf| open_one(path, &trust)) {
        match opened {
            Ok(part) => parts.push(part),
            Err(report) => wrong.push(report),
        }
    }
    if wrong.is_empty() { Ok(parts) } else { Err(wrong.into()) }
}

fn open_one(path: &Path, trust: &Trust) -> Result<Part, Report> {
    let name = path.display().to_string();
    let bundle = inspect::open_by_name(path, trust)?;
    bundle.verify().map_err(|errors| {
        let unread = errors.iter().any(|e| matches!(e, BundleError::Io { .. }));
        let class = if unread { Class::Environment } else { Class::Failed };
        let report = Report::new("PB-3171", class, format!("`{name}` is not whole, and is not merged"));
        let report = errors.iter().fold(report, |report, e| report.with(e.code(), e));
        report.help("build or fetch it again")
    })?;
    let refuse = |e: BundleError| Report::new(e.code(), Class::Failed, e.to_string());
    let details = bundle.details().map_err(refuse)?.clone();
    Ok(Part { name, bundle, details })
}
