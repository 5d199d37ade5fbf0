//! `parbake build`: bakes a bundle.

mod file;
mod make;
mod parts;
mod progress;
mod snippets;

pub(crate) use file::{cannot_write, check_output, write, write_with};

use super::lock;
use crate::fleet::Fleet;
use crate::output::{Failure, Output};
use crate::select;
use parbake::frames::Frames;
use parbake::{Keys, Library};
use parbake_codegen::baking::{self, Job, Keep, Only, Packing, Plan};
use parbake_codegen::toolchain::{Kind, Nvfatbin, Search, Toolchain, find_nvfatbin, memory};
use parbake_model::bundle::{Bundle, LEVEL};
use parbake_model::identity::Profile;
use parbake_model::lock::Lock;
use parbake_model::metadata::Metadata;
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Language, Target, Toolkit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Bakes the kernels of an explicit list of architectures into a bundle.
///
/// What the store holds already is not compiled again, and a bundle that is up to date is left alone.
///
///   parbake build --arch 80,90a,100f,120f --op 'norm/*' -o norm.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets, as in `80,90a,100f`; `host` adds shared objects for the host target [default: PARBAKE_ARCHS and the GPUs here]
    #[arg(long, value_name = "LIST")]
    arch: Option<String>,
    #[command(flatten)]
    ops: select::Ops,
    /// Bakes the specs of a lock, for its targets unless `--arch` is given; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["op", "only"])]
    lock: Option<PathBuf>,
    /// Bakes the specs with a caller's own source (docs/attention.md), all or those of `--only`; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["op", "lock", "fleet"])]
    snippet: Vec<PathBuf>,
    /// A file that says what to bake for which GPUs (docs/fleet.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["arch", "op", "only", "lock", "toolkit", "min_driver", "level", "lineinfo"])]
    fleet: Option<PathBuf>,
    /// The bundle to write, or with `--split` and `--plan` the folder
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    parts: parts::Parts,
    /// Compile with this toolkit instead of 12.9, or 13.0 where a target needs it
    #[arg(long, value_name = "VERSION")]
    toolkit: Option<Toolkit>,
    /// Fail unless every image runs on drivers from this CUDA version on
    #[arg(long, value_name = "VERSION")]
    min_driver: Option<Toolkit>,
    /// Compression, 1 to 22: 12 takes a fifteenth of the time for an eighth more bytes
    #[arg(long, value_name = "LEVEL", default_value_t = LEVEL, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// With line tables, for profilers: no instruction differs
    #[arg(long)]
    lineinfo: bool,
    /// Compilers that run at once [default: PARBAKE_JOBS, else as processors and memory allow]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    /// What all compilers may take together, as in `4G` [default: PARBAKE_MEMORY, else what is free]
    #[arg(long, value_name = "SIZE", value_parser = select::size)]
    memory: Option<u64>,
}

/// What a bake did.
#[derive(Debug, Serialize)]
pub(crate) struct Baked {
    pub(crate) bundle: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) images: usize,
    pub(crate) compiled: usize,
    pub(crate) from_store: usize,
    pub(crate) skipped: BTreeMap<String, usize>,
    pub(crate) targets: Vec<Target>,
    pub(crate) up_to_date: bool,
    /// Which part of which plan it is, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Digest>,
    pub(crate) seconds: f64,
}

/// What to bake.
pub(crate) struct Bake<'a> {
    pub(crate) op: &'a str,
    pub(crate) only: &'a Only,
    /// Only what this lock asks for, if there is one.
    pub(crate) lock: Option<&'a Lock>,
    pub(crate) targets: &'a [Target],
    pub(crate) output: &'a Path,
    pub(crate) toolkit: Option<Toolkit>,
    pub(crate) min_driver: Option<Toolkit>,
    pub(crate) level: i32,
    pub(crate) profile: Profile,
    /// Only one shard of it, if one is given.
    pub(crate) cut: Option<parts::Cut>,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    let fleet = args.fleet.as_deref().map(Fleet::read).transpose()?;
    let fleet = fleet.as_ref();
    let lock = args.lock.or_else(|| fleet.and_then(Fleet::lock));
    let lock = lock.as_deref().map(lock::read).transpose()?;
    let of_fleet = fleet.map(Fleet::targets).transpose()?.unwrap_or_default();
    let targets = match &lock {
        _ if !of_fleet.is_empty() => of_fleet,
        Some(lock) if args.arch.is_none() && !lock.targets.is_empty() => lock.targets.clone(),
        _ => select::targets(args.arch.as_deref(), &config)?,
    };
    let only = fleet.map_or_else(|| args.ops.only(), |fleet| Ok(fleet.only.clone()))?;
    config.memory = args.memory.or(config.memory);
    config.jobs = jobs(args.jobs, &config, &targets, !out.json);
    let library = Library::open(config.without_bundles())?;
    let lock = match args.snippet.is_empty() {
        true => lock,
        false => Some(snippets::lock(&library, &args.snippet, &only, &targets)?),
    };
    if let Some(lock) = &lock {
        library.resolved(lock)?;
    }
    let lineinfo = fleet.map_or(args.lineinfo, |fleet| fleet.lineinfo);
    let what = Bake {
        op: &fleet.map_or(args.ops.op, Fleet::op),
        only: &only,
        lock: lock.as_ref(),
        targets: &targets,
        output: &args.output,
        toolkit: fleet.map_or(args.toolkit, |fleet| fleet.toolkit),
        min_driver: fleet.map_or(args.min_driver, |fleet| fleet.min_driver),
        level: fleet.and_then(|fleet| fleet.level).unwrap_or(args.level),
        profile: if lineinfo { Profile::Lineinfo } else { Profile::Release },
        cut: args.parts.shard.map(|shard| parts::Cut { shard, costs: args.parts.costs.clone() }),
    };
    if args.parts.split {
        let split = parts::split(&library, &what, &args.output, &args.parts.name, out)?;
        out.show(&split, || split.text());
        return Ok(());
    }
    if let Some(form) = args.parts.plan {
        let plan = parts::export(&library, &what, &args.output, form, &args.parts.name)?;
        out.show(&plan, || plan.text());
        return Ok(());
    }
    let baked = bake(&library, &what, out)?;
    out.show(&baked, || text(&baked));
    Ok(())
}

/// How many compilers run at once: as many as was said, or as processors and memory allow; then it can be told.
pub(super) fn jobs(given: Option<u16>, config: &Config, targets: &[Target], told: bool) -> usize {
    if given.is_some() || config.set.contains_key("PARBAKE_JOBS") {
        return given.map_or(config.jobs, usize::from);
    }
    let kind = if targets.contains(&Target::Host) { Kind::Host } else { Kind::Nvrtc };
    let (free, each) = (memory::available(), memory::estimate(kind));
    let jobs = memory::jobs(config.jobs, free, config.memory, each);
    if told {
        let bytes = |memory: Option<u64>| memory.map_or("unknown".to_owned(), crate::text::bytes);
        let allowed = config.memory.map_or(String::new(), |m| format!(", PARBAKE_MEMORY allows {}", bytes(Some(m))));
        crate::output::note(format!(
            "{jobs} compilers at once: {} processors, {} of memory free{allowed}, {} for each",
            config.jobs,
            bytes(free),
            bytes(Some(each))
        ));
    }
    jobs
}

fn text(baked: &Baked) -> String {
    let targets: Vec<String> = baked.targets.iter().map(Target::to_string).collect();
    let mut text = if baked.up_to_date {
        format!("{} is up to date: {} images for {}\n", baked.bundle.display(), baked.images, targets.join(", "))
    } else {
        format!(
            "{}: {} images for {} in {} bytes\n{} compiled, {} from the store, {:.1} s\n",
            baked.bundle.display(),
            baked.images,
            targets.join(", "),
            baked.bytes,
            baked.compiled,
            baked.from_store,
            baked.seconds
        )
    };
    let skipped: usize = baked.skipped.values().sum();
    if skipped > 0 {
        text += &format!("{skipped} combinations do not exist; `parbake expand` says why\n");
    }
    text
}

/// What is asked for.
fn planned<'a>(library: &'a Library, what: &Bake<'_>) -> Result<Plan<'a>, Failure> {
    let ops = library.ops().map(|(_, op)| op);
    let Some(lock) = what.lock else { return Ok(baking::plan(ops, what.op, what.only, what.targets)?) };
    let plan = baking::plan_lock(ops, lock, what.targets)?;
    if plan.jobs.is_empty() {
        let reasons: BTreeSet<&str> = plan.skipped.iter().map(|s| s.reason.as_str()).collect();
        let reasons = if lock.specs.is_empty() { "the lock names no spec".into() } else { format!("{reasons:?}") };
        let what = "no spec of the lock exists for any of the targets; nothing was built";
        return Err(Report::new("PB-3147", Class::Usage, what).with("reasons", reasons).into());
    }
    Ok(plan)
}

/// A plan, and what carries it out.
struct Ready<'a> {
    plan: Plan<'a>,
    toolchains: Toolchains,
    /// The ids of the packers.
    packers: BTreeSet<String>,
}

/// Plans, and finds all that it takes, before anything is compiled.
fn ready<'a>(library: &'a Library, what: &Bake<'_>) -> Result<Ready<'a>, Failure> {
    let plan = planned(library, what)?;
    let toolchains = toolchains(library, &plan, what.toolkit)?;
    let images = toolchains.iter().filter_map(|(&(_, target), toolchain)| Some((target, toolchain.toolkit()?)));
    let images: BTreeSet<(Target, Toolkit)> = images.filter(|(target, _)| *target != Target::Host).collect();
    if let Some(floor) = what.min_driver {
        baking::check_driver_floor(images.iter().copied(), floor)?;
    }
    let packers = images.iter().map(|&(target, toolkit)| Ok(packer(library, target, toolkit)?.id().to_owned()));
    let packers = packers.collect::<Result<BTreeSet<String>, Report>>()?;
    Ok(Ready { plan, toolchains, packers })
}

/// Makes a bundle, or finds that the one there is what it would make.
pub(crate) fn bake(library: &Library, what: &Bake<'_>, out: Output) -> Result<Baked, Failure> {
    let start = Instant::now();
    if what.output.is_dir() {
        return Err(Report::new("PB-1117", Class::Usage, format!("{} is a folder", what.output.display()))
            .with("expected", "the name of a file, as in `-o norm.pbk`")
            .into());
    }
    let mut ready = ready(library, what)?;
    if let Some(cut) = &what.cut {
        parts::cut(library, &mut ready, what, cut)?;
    }
    let Ready { plan, toolchains, packers } = ready;
    let nvfatbin = |target, toolkit| packer(library, target, toolkit);
    let mut baked = Baked {
        bundle: what.output.to_owned(),
        bytes: 0,
        images: plan.jobs.len(),
        compiled: 0,
        from_store: 0,
        skipped: BTreeMap::new(),
        targets: plan.jobs.iter().map(|j| j.target).collect::<BTreeSet<_>>().into_iter().collect(),
        up_to_date: false,
        shard: plan.label.as_ref().map(|label| label.shard.to_string()),
        plan: plan.label.as_ref().map(|label| label.plan),
        seconds: 0.0,
    };
    for skipped in &plan.skipped {
        *baked.skipped.entry(skipped.reason.clone()).or_default() += 1;
    }
    if up_to_date(library, &plan, &toolchains, &packers, what)? {
        baked.up_to_date = true;
        baked.bytes = std::fs::metadata(what.output).map_or(0, |m| m.len());
        baked.seconds = start.elapsed().as_secs_f64();
        return Ok(baked);
    }
    check_output(what.output)?;
    let made = make::make(library, &plan, &toolchains, what, out)?;
    let metadata: Vec<Metadata> = made.units.iter().map(|unit| unit.metadata.clone()).collect();
    let frames = Frames::new(library.workspace().clone());
    let (config, params) = (library.config(), params(library));
    let packing = Packing {
        params: &params,
        nvfatbin: &nvfatbin,
        level: parts::level(&plan, what.level),
        threads: config.jobs,
        keep: config.cache.then_some(&frames as &dyn Keep),
    };
    let bytes = baking::pack_from(&plan, &metadata, &|i| make::image(&made.units[i]), &packing)?;
    write(what.output, &bytes)?;
    baked.from_store = made.from_store;
    baked.compiled = baked.images - baked.from_store;
    baked.bytes = bytes.len() as u64;
    baked.seconds = start.elapsed().as_secs_f64();
    Ok(baked)
}

type Toolchains = BTreeMap<(Language, Target), Arc<dyn Toolchain>>;

/// What decides which toolchain makes a job.
pub(super) fn made_by(job: &Job<'_>) -> (Language, Target) {
    (job.op.language, job.target)
}

/// What the artifact of a job is known by.
pub(super) fn keys(
    library: &Library,
    job: &Job<'_>,
    toolchains: &Toolchains,
    profile: Profile,
) -> Result<Keys, parbake::Error> {
    let op = library.op(&job.op.name)?;
    library.build_key(op, &job.spec, job.target, &*toolchains[&made_by(job)], profile)
}

/// One toolchain a language and target; all that are missing are reported, before anything is compiled.
fn toolchains(library: &Library, plan: &Plan<'_>, want: Option<Toolkit>) -> Result<Toolchains, Failure> {
    let (mut found, mut missing) = (Toolchains::new(), Vec::new());
    for (language, target) in plan.jobs.iter().map(made_by).collect::<BTreeSet<_>>() {
        match library.toolchain_of(language, target, want) {
            Ok(toolchain) => drop(found.insert((language, target), toolchain)),
            Err(report) if missing.contains(&report) => {}
            Err(report) => missing.push(report),
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(missing.into()) }
}

/// The packer that belongs to a toolkit.
pub(crate) fn packer(library: &Library, target: Target, toolkit: Toolkit) -> Result<Arc<Nvfatbin>, Report> {
    let config = library.config();
    let (explicit, toolchains) = (None, config.toolchains.clone());
    find_nvfatbin(&Search { explicit, toolchains, want: Some(toolkit), driver: None, target }).map_err(|e| e.report())
}

/// What a bundle records of the parameters of an op.
pub(crate) fn params(library: &Library) -> impl Fn(&Op) -> Result<Digest, Report> {
    |op| library.op(&op.name).and_then(|id| library.params_digest(id)).map_err(|e| e.report())
}

/// Whether the file there holds exactly the builds that the plan would make, undamaged.
fn up_to_date(
    library: &Library,
    plan: &Plan<'_>,
    toolchains: &Toolchains,
    packers: &BTreeSet<String>,
    what: &Bake<'_>,
) -> Result<bool, Failure> {
    let Some(bundle) = std::fs::File::open(what.output).ok().and_then(|f| Bundle::open(f).ok()) else {
        return Ok(false);
    };
    let held: BTreeSet<(Digest, Target, Digest)> =
        bundle.entries().iter().map(|e| (e.source_key, e.target, e.build_key)).collect();
    let units = parts::units(library, plan, toolchains, what.profile)?;
    let wanted: BTreeSet<(Digest, Target, Digest)> =
        units.into_iter().map(|unit| (unit.source_key, unit.target, unit.build_key)).collect();
    let current = bundle.details().is_ok_and(|d| {
        d.library == parbake_model::VERSION
            && d.launch_abi == parbake_model::LAUNCH_ABI
            && d.targets == plan.targets
            && d.skipped == sorted(plan)
            && d.provenance == parts::provenance(plan, packers, what.level)
    });
    Ok(current && held == wanted && bundle.verify().is_ok())
}

fn sorted(plan: &Plan<'_>) -> Vec<parbake_model::bundle::Skipped> {
    let mut skipped = plan.skipped.clone();
    skipped.sort();
    skipped
}
