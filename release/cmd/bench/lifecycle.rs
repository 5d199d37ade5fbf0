//! `parbake bench lifecycle`: what a process pays for a kernel that exists already, and for knowing which one it is.

use super::{Row, row, sample};
use crate::output::Failure;
use parbake::decision::Origin;
use parbake::trial::Trial;
use parbake::{Library, OpId, Place, driver};
use parbake_codegen::toolchain::Toolchain;
use parbake_model::identity::{Profile, Spec};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Target, space};
use std::collections::BTreeMap;

/// Registry hits are timed in batches: one takes less than the clock's step.
const BATCH: u32 = 10_000;

pub(super) fn run(n: usize, config: &Config) -> Result<Vec<Row>, Failure> {
    let folder = tempfile::tempdir().map_err(|e| {
        Report::new("PB-3148", Class::Environment, "cannot make a temporary folder for the measurement").caused_by(e)
    })?;
    let config =
        Config { workspace: folder.path().join("workspace"), store: None, jit: true, cache: true, ..config.clone() };
    let config = config.without_bundles();
    let mut rows = Vec::new();
    open(n, &config, &mut rows)?;
    keys(n, &config, &mut rows)?;
    let gpu = driver::ready().is_some_and(|ready| !ready.devices.is_empty());
    for place in [Some(Place::Host), gpu.then_some(Place::Cuda(0))].into_iter().flatten() {
        serve(n, &config, place, &mut rows)?;
    }
    Ok(rows)
}

fn open(n: usize, config: &Config, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let times = sample(n, || Library::open(config.clone()).map(drop))?;
    let sources = if config.kernels.is_some() { "definitions from the kernel folder" } else { "definitions built in" };
    rows.push(row("open a library", "ms", 1e3, times, sources));
    Ok(())
}

/// From values to the build key of every spec of a family, without a kernel folder.
fn keys(n: usize, config: &Config, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let with_compiler = Library::open(config.clone())?;
    let toolchain = with_compiler.toolchain(Target::Host, None)?;
    let library = Library::open(Config { kernels: None, ..config.clone() })?;
    let ops: Vec<OpId> = library.ops().map(|(id, _)| id).collect();
    let specs: Vec<(OpId, Spec)> = ops
        .iter()
        .flat_map(|&op| {
            space::specs(library.definition(op)).filter(|(_, legal)| legal.is_ok()).map(move |(s, _)| (op, s))
        })
        .collect();
    let count = specs.len();
    let all = || specs.iter().try_for_each(|(op, spec)| key(&library, *op, spec, &*toolchain));
    let times = sample(n, all)?.into_iter().map(|seconds| seconds / count as f64).collect();
    rows.push(row("all keys of a spec, no kernel folder", "us", 1e6, times, format!("mean over {count} specs")));
    Ok(())
}

fn key(library: &Library, op: OpId, spec: &Spec, toolchain: &dyn Toolchain) -> Result<(), parbake::Error> {
    let def = library.definition(op);
    let index = (library.id(op, spec)?, spec.id_key(def));
    let keys = library.build_key(op, spec, Target::Host, toolchain, Profile::Release)?;
    std::hint::black_box((index, keys));
    Ok(())
}

/// A kernel from the store in a library that knows nothing yet, then from the registry. The kernel's numbers are checked
/// before and after.
fn serve(n: usize, config: &Config, place: Place, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let at = if place == Place::Host { "host" } else { "GPU" };
    let spec = checked(&Library::open(config.clone())?, place, None)?;
    let mut last = None;
    let mut times = Vec::new();
    for _ in 0..n {
        let library = Library::open(config.clone())?;
        let op = library.op(&spec.op)?;
        let mut from = None;
        times.extend(sample(1, || library.kernel(op, &spec, place).map(|(_, origin)| from = Some(origin)))?);
        if from != Some(Origin::Store) {
            let got = from.map_or("nothing".to_owned(), |f| f.to_string());
            return Err(Report::new("PB-3149", Class::Failed, "the kernel does not come from the store")
                .with("got", got)
                .help("see that the temporary folder can be written: parbake doctor")
                .into());
        }
        last = Some(library);
    }
    let note = "fresh library: compiler identified, found, verified, loaded";
    rows.push(row(format!("store hit, {at}"), "ms", 1e3, times, note));
    let library = last.expect("bug: measured at least once");
    checked(&library, place, Some(&spec))?;
    let id = library.id(library.op(&spec.op)?, &spec)?;
    let times = sample(n, || {
        (0..BATCH).for_each(|_| drop(std::hint::black_box(library.hit(std::hint::black_box(id), place))));
        Ok::<_, Failure>(())
    })?;
    let times = times.into_iter().map(|seconds| seconds / f64::from(BATCH)).collect();
    rows.push(row(format!("registry hit, {at}"), "ns", 1e9, times, format!("mean of {BATCH}")));
    Ok(())
}

/// Runs rmsnorm and checks its numbers; gives the spec that ran.
fn checked(library: &Library, place: Place, expected: Option<&Spec>) -> Result<Spec, Failure> {
    let op = library.op("rmsnorm")?;
    let axes = BTreeMap::from([("dtype".to_owned(), "f32".to_owned())]);
    let outcome = Trial::example(library.definition(op), axes).run(library, op, place)?;
    let found = space::specs(library.definition(op)).map(|(s, _)| s).find(|s| s.uri == outcome.uri);
    let same = expected.is_none_or(|e| e.uri == outcome.uri);
    match found.filter(|_| outcome.ok && same) {
        Some(spec) => Ok(spec),
        None => Err(crate::cmd::run::wrong(&outcome).into()),
    }
}
