//! `parbake lock`: writes down which specs a job needs.

use crate::output::{Failure, Output};
use crate::select;
use parbake::Library;
use parbake_codegen::baking;
use parbake_model::lock::{Lock, LockError};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::target::Target;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Writes a lock: the specs that a job needs, to be baked or prepared before it starts.
///
/// It names every tactic of the chosen ops, so that a call of any shape is covered.
///
///   parbake lock --arch 90a --op 'norm/*' --only dtype=bf16 -o parbake.lock
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the job runs on, as in `90a,host` [default: PARBAKE_ARCHS and the GPUs here]
    #[arg(long, value_name = "LIST")]
    arch: Option<String>,
    #[command(flatten)]
    ops: select::Ops,
    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let targets = select::targets(args.arch.as_deref(), &config)?;
    let only = args.ops.only()?;
    let library = Library::open(config.without_bundles())?;
    let plan = baking::plan(library.ops().map(|(_, op)| op), &args.ops.op, &only, &targets)?;
    let lock = Lock::new(plan.jobs.iter().map(|job| &job.spec), plan.jobs.iter().map(|job| job.target));
    let Some(path) = &args.output else {
        out.show(&lock, || lock.to_json());
        return Ok(());
    };
    std::fs::write(path, lock.to_json()).map_err(|error| {
        Report::new("PB-3146", Class::Environment, format!("cannot write {}", path.display())).caused_by(error)
    })?;
    let targets: Vec<String> = lock.targets.iter().map(Target::to_string).collect();
    let summary = serde_json::json!({ "lock": path, "specs": lock.specs.len(), "targets": targets });
    out.show(&summary, || format!("{}: {} specs for {}", path.display(), lock.specs.len(), targets.join(", ")));
    Ok(())
}

/// Reads a lock file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Lock, Report> {
    let refuse = |error: std::io::Error| {
        Report::new("PB-3145", Class::Environment, format!("cannot read lock {}", path.display())).caused_by(error)
    };
    let mut text = Vec::new();
    // One byte more than is allowed tells that there is more.
    let most = parbake_model::lock::MAX_BYTES as u64 + 1;
    if path == Path::new("-") {
        std::io::stdin().take(most).read_to_end(&mut text).map_err(refuse)?;
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut text)).map_err(refuse)?;
    }
    Lock::from_json(&text).map_err(|error: LockError| {
        Report::new(error.code(), Class::Failed, format!("{} is no lock", path.display())).caused_by_chain(&error)
    })
}
