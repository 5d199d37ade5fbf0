//! `parbake prepare`: has everything ready before a job starts.

use super::{build, lock};
use crate::output::{Failure, Output};
use crate::select;
use crate::text::Table;
use parbake::{Library, Preparation, Site};
use parbake_model::Target;
use parbake_model::settings::Config;
use std::path::PathBuf;

/// Compiles what a job needs and no bundle covers, in parallel, into the store; or names every gap at once.
///
///   parbake prepare --lock parbake.lock --bundle norm.pbk
///
///   parbake prepare rmsnorm dtype=bf16 --target 90a
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A lock, as `parbake lock` writes it; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "op")]
    lock: Option<PathBuf>,
    /// The op, as in `rmsnorm`; all its tactics are prepared
    #[arg(value_name = "OP", required_unless_present = "lock")]
    op: Option<String>,
    /// A value for each axis, as in `dtype=bf16`, and for those tactics that should be fixed
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// Architectures such as `90a,host` [default: those of the lock, else the GPUs here, else the host]
    #[arg(long, value_name = "LIST")]
    target: Option<String>,
    /// A bundle to look in before those of PARBAKE_BUNDLES; may be repeated
    #[arg(long = "bundle", value_name = "FILE")]
    bundles: Vec<PathBuf>,
    /// Compilers that run at once [default: PARBAKE_JOBS, else as processors and memory allow]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    let lock = args.lock.as_deref().map(lock::read).transpose()?;
    let listed = lock.as_ref().map(|lock| lock.targets.clone()).unwrap_or_default();
    let targets = match &args.target {
        None if !listed.is_empty() => listed,
        None => match select::targets(None, &config) {
            Ok(found) => found,
            Err(_) => vec![Target::Host],
        },
        given => select::targets(given.as_deref(), &config)?,
    };
    // Often there is nothing to compile, so nothing is told.
    config.jobs = build::jobs(args.jobs, &config, &targets, false);
    let library = Library::open(select::with_bundles(config, &args.bundles)?)?;
    let sites: Vec<Site> = targets.into_iter().map(Site::Target).collect();
    let wanted = match (&lock, &args.op) {
        (Some(lock), _) => library.locked(lock, &sites)?,
        (None, Some(op)) => library.tactics(library.op(op)?, &select::pairs(&args.values)?, &sites)?,
        (None, None) => unreachable!("bug: clap asks for one of the two"),
    };
    let summary = library.make_ready(&wanted)?;
    out.show(&summary, || text(&summary));
    Ok(())
}

fn text(summary: &Preparation) -> String {
    let mut table = Table::plain();
    for ready in &summary.ready {
        let cost = ready.compile_ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        table.row([ready.uri.as_str(), &ready.target.to_string(), &ready.from.to_string(), &cost]);
    }
    let count = summary.ready.len();
    format!("{}{count} specs are ready, {} compiled, {:.1} s\n", table.text(), summary.compiled, summary.seconds)
}
