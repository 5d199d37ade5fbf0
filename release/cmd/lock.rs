//! `parbake lock`: writes down which specs a job needs.

pub(crate) use crate::asked::read_lock as read;
use crate::asked::{Sources, Wishes};
use crate::cmd::build::write;
use crate::output::{Failure, Output, note};
use crate::{select, text};
use parbake::Library;
use parbake_codegen::baking;
use parbake_model::lock::{Lock, Locked};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use std::path::PathBuf;

/// Writes a lock: the specs that a job needs, to be baked or prepared before it starts.
///
/// Of ops it names every tactic, so that a call of any shape is covered. Of recordings (PARBAKE_RECORD) and other locks it
/// names exactly what they ask for, each for the targets that asked.
///
///   parbake lock --arch 90a --op 'norm/*' --only dtype=bf16 -o parbake.lock
///
///   parbake lock calls.jsonl other.lock -o parbake.lock
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Recordings and locks to merge; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with_all = ["op", "only"])]
    files: Vec<PathBuf>,
    /// What the job runs on, as in `90a,host` [default: of files what they name, else PARBAKE_ARCHS and the GPUs here]
    #[arg(long, value_name = "LIST")]
    arch: Option<String>,
    #[command(flatten)]
    ops: select::Ops,
    /// Adds to what the files ask for every other tactic, for calls of shapes that were not recorded
    #[arg(long, requires = "files")]
    all_tactics: bool,
    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let (lock, wishes) =
        if args.files.is_empty() { (of_ops(&args, config)?, Wishes::default()) } else { merged(&args, config)? };
    for left in &wishes.left_out {
        note(format!("note: left out {left}"));
    }
    if lock.specs.is_empty() {
        note("warning: the files ask for nothing, so the lock names no spec");
    }
    let Some(path) = &args.output else {
        out.show(&lock, || lock.to_json());
        return Ok(());
    };
    write(path, lock.to_json().as_bytes()).map_err(|report| {
        let what = Report::new("PB-3146", Class::Environment, format!("cannot write {}", path.display()));
        report.causes.iter().fold(what, |report, cause| report.caused_by(cause))
    })?;
    let summary = serde_json::json!({
        "lock": path,
        "specs": lock.specs.len(),
        "targets": lock.targets,
        "torn": wishes.torn,
        "left_out": wishes.left_out,
    });
    out.show(&summary, || {
        format!("{}: {} for {}", path.display(), text::count(lock.specs.len(), "spec"), text::list(&lock.targets))
    });
    Ok(())
}

/// Each spec for those of the targets for which it exists.
fn of_ops(args: &Args, config: Config) -> Result<Lock, Failure> {
    let targets = select::targets(args.arch.as_deref(), &config)?;
    let only = args.ops.only()?;
    let library = Library::open(config.without_bundles())?;
    let plan = baking::plan(library.ops().map(|(_, op)| op), &args.ops.op, &only, &targets)?;
    Ok(Lock::of(plan.jobs.iter().map(|job| (Locked::from(&job.spec), job.target))))
}

fn merged(args: &Args, config: Config) -> Result<(Lock, Wishes), Failure> {
    let sources = Sources::read(&args.files)?;
    let instead = args.arch.as_deref().map(|arch| select::targets(Some(arch), &config)).transpose()?;
    let library = Library::open(config.without_bundles())?;
    let mut wishes = sources.resolve(&library, instead.as_deref())?;
    if args.all_tactics {
        wishes.widen(&library);
    }
    Ok((wishes.lock(), wishes))
}
