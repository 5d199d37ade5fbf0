//! Making what a plan asks for: from the store what it holds, the rest in worker processes.

use super::progress::Meter;
use super::{Bake, Toolchains, keys, made_by};
use crate::output::{Failure, Output};
use parbake::{Keys, Library};
use parbake_codegen::baking::costs::{Cost, Costs};
use parbake_codegen::baking::governor::Governor;
use parbake_codegen::baking::pool::{Outcome, Pool, Request, Task, Unit};
use parbake_codegen::baking::{Job, Plan, interrupt, on_threads};
use parbake_codegen::toolchain::{Kind, memory};
use parbake_model::identity::Profile;
use parbake_model::lock::Lock;
use parbake_model::owner::Owner;
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, Language, Target};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a worker is left, beyond what a compiler process is allowed: it ends that one itself.
const GRACE: Duration = Duration::from_secs(30);

/// The artifacts of a plan, in its order.
pub(super) struct Made {
    pub(super) units: Vec<Unit>,
    pub(super) from_store: usize,
    /// Images that lie here because the store did not take them.
    #[expect(dead_code, reason = "held, because dropping it removes the folder")]
    scratch: tempfile::TempDir,
}

/// Makes all artifacts of a plan.
pub(super) fn make(
    library: &Library,
    plan: &Plan<'_>,
    toolchains: &Toolchains,
    what: &Bake<'_>,
    out: Output,
) -> Result<Made, Failure> {
    let stop = interrupt::listen();
    let scratch = scratch(library)?;
    let mut units = held(library, plan, toolchains, what.profile)?;
    let from_store = units.iter().flatten().count();
    let costs = Costs::read(&library.workspace().costs()).unwrap_or_default();
    let mut missing: Vec<usize> = (0..units.len()).filter(|&i| units[i].is_none()).collect();
    let expected = |i: usize| costs.estimate(&plan.jobs[i].spec, plan.jobs[i].target).ms;
    // What takes longest goes first, so that no long one is left over at the end, with one compiler at work.
    match &library.config().store_shared {
        None => missing.sort_by_key(|&i| (Reverse(expected(i)), i)),
        // Among those that take about as long each machine has an order of its own: in the same one, each would wait for
        // what another is compiling.
        Some(_) => missing.sort_by_cached_key(|&i| (Reverse(expected(i).checked_ilog2()), own_order(&plan.jobs[i]))),
    }
    let tasks: Vec<Task> =
        missing.iter().map(|&i| task(&plan.jobs[i], what, &costs, scratch.path().to_owned())).collect();

    let meter = Meter::new(plan.jobs.len(), from_store, missing.iter().map(|&i| expected(i)).sum(), out);
    let told = Cell::new(library.shared_store_failed());
    let (meter, learned) = (RefCell::new(meter), RefCell::new(Costs::default()));
    let program = std::env::current_exe()
        .map_err(|e| Report::new("PB-1151", Class::Environment, "the program does not find itself").caused_by(e))?;
    let worker = || {
        let mut command = Command::new(&program);
        command.arg("worker").env("PARBAKE_JOBS", "1");
        command
    };
    let config = library.config();
    let outcome = Pool {
        jobs: config.jobs,
        governor: Governor { limit_kib: config.memory.map(|bytes| bytes / 1024) },
        limit: config.compile_timeout + GRACE,
        worker: &worker,
        stop,
        progress: &|now| {
            let mut meter = meter.borrow_mut();
            if let Some((number, unit)) = now.made {
                let job = &plan.jobs[missing[number]];
                if unit.compiled {
                    let cost = Cost { ms: unit.metadata.compile_ms, kib: unit.peak_kib };
                    learned.borrow_mut().record(&job.spec, job.target, cost);
                }
                meter.step(&tasks[number].name, expected(missing[number]));
            }
            if let Some(line) = now.said {
                // Each worker finds out for itself that there is no shared store; it is said once.
                let known = line.contains("PARBAKE_STORE_SHARED") && told.replace(true);
                if !known {
                    meter.say(line);
                }
            }
            meter.tick(now.busy, now.kib);
        },
    }
    .run(&tasks);
    meter.borrow().finish();
    library.keep_costs(learned.into_inner());
    if !outcome.failed.is_empty() || outcome.stopped {
        let held = from_store + outcome.made.iter().flatten().count();
        if outcome.stopped {
            library.workspace().collect_leftovers(Duration::ZERO);
        }
        return Err(ended(outcome, held, plan.jobs.len()));
    }
    let mut others = 0;
    for (number, unit) in outcome.made.into_iter().enumerate() {
        let unit = unit.expect("bug: neither made nor failed");
        planned(library, &plan.jobs[missing[number]], toolchains, what.profile, &unit)?;
        others += usize::from(!unit.compiled);
        units[missing[number]] = Some(unit);
    }
    let units = units.into_iter().map(|unit| unit.expect("bug: one was left out")).collect();
    Ok(Made { units, from_store: from_store + others, scratch })
}

/// A worker reads the sources for itself: what it made must be of the state that was planned with.
fn planned(
    library: &Library,
    job: &Job<'_>,
    toolchains: &Toolchains,
    profile: Profile,
    unit: &Unit,
) -> Result<(), Failure> {
    let Keys { source_key, build_key } = keys(library, job, toolchains, profile)?;
    if unit.metadata.build_key == build_key {
        return Ok(());
    }
    let what = format!("the sources of {} changed during the bake; nothing was written", job.op.path());
    let report = Report::new("PB-1155", Class::Failed, what)
        .with("expected", format!("{} of source key {}", job.spec.uri, source_key.short(16)))
        .with("got", format!("source key {}", unit.metadata.source_key.short(16)));
    Err(report.help("run it again when nobody edits the kernels").into())
}

/// Why nothing is packed.
fn ended(outcome: Outcome, held: usize, total: usize) -> Failure {
    let mut reports: Vec<Report> = outcome.failed.into_iter().map(|(_, report)| report).collect();
    if outcome.stopped {
        reports.push(interrupted().with("done", format!("{held} of {total} images")));
    } else if let Some(last) = reports.last_mut().filter(|_| outcome.left > 0) {
        last.details.push(("left".into(), format!("{} images were not begun after that", outcome.left)));
    }
    reports.into()
}

/// The bake was asked to end.
fn interrupted() -> Report {
    Report::new("PB-1152", Class::Failed, "the bake was interrupted; nothing was written")
        .help("run the same command again: it goes on from what is in the store")
}

/// What the store has of a plan.
fn held(
    library: &Library,
    plan: &Plan<'_>,
    toolchains: &Toolchains,
    profile: Profile,
) -> Result<Vec<Option<Unit>>, Failure> {
    let found = on_threads(library.config().jobs, &plan.jobs, &|job: &Job<'_>| {
        let op = library.op(&job.op.name)?;
        let artifact = library.held(op, &job.spec, job.target, &*toolchains[&made_by(job)], profile)?;
        let unit = |artifact: parbake::store::Artifact| {
            let file = artifact.path?.join(&artifact.metadata.file);
            Some(Unit { metadata: artifact.metadata, file, compiled: false, peak_kib: 0 })
        };
        Ok::<_, parbake::Error>(artifact.and_then(unit))
    });
    Ok(found.into_iter().collect::<Result<Vec<_>, _>>()?)
}

fn own_order(job: &Job<'_>) -> Digest {
    let Owner { process, host, .. } = Owner::this();
    Digest::of(format!("{host} {process} {} {}", job.spec.uri, job.target).as_bytes())
}

fn task(job: &Job<'_>, what: &Bake<'_>, costs: &Costs, scratch: std::path::PathBuf) -> Task {
    let kind = match (job.op.language, job.target) {
        (Language::Triton, _) => Kind::Triton,
        (_, Target::Host) => Kind::Host,
        _ => Kind::Nvrtc,
    };
    // What a worker learns is its own memory, not that of a compiler's process.
    let learned = costs.peak(&job.op.name).filter(|_| kind == Kind::Nvrtc);
    let need_kib = learned.unwrap_or(memory::estimate(kind) / 1024);
    let spec = Lock::new([&job.spec], []).specs.remove(0);
    Task {
        name: format!("{} for {}", job.spec.uri, job.target),
        request: Request { spec, target: job.target, toolkit: what.toolkit, profile: what.profile, scratch },
        need_kib,
    }
}

fn scratch(library: &Library) -> Result<tempfile::TempDir, Report> {
    let folder = library.workspace().temporary();
    let made = tempfile::tempdir_in(folder).or_else(|_| tempfile::tempdir());
    made.map_err(|e| {
        Report::new("PB-1117", Class::Environment, "there is no folder for what a bake makes meanwhile").caused_by(e)
    })
}

/// Reads an image again, as it was when it was made.
pub(super) fn image(unit: &Unit) -> Result<Vec<u8>, Report> {
    if interrupt::listen().load(Ordering::Relaxed) {
        return Err(interrupted());
    }
    let refuse = |why: String| {
        Report::new("PB-1602", Class::Environment, format!("{} is damaged: {why}", unit.file.display()))
            .help("run it again: what is damaged is made anew")
    };
    let bytes = std::fs::read(&unit.file).map_err(|e| refuse(e.to_string()))?;
    match Digest::of(&bytes) == unit.metadata.image {
        true => Ok(bytes),
        false => Err(refuse("it was changed during the bake".into())),
    }
}
