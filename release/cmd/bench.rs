//! `parbake bench`: measures this machine. Every figure comes from a run that checked its result.

mod call;
mod lifecycle;
mod open;
mod ops;
mod report;

use super::build::{packer, params};
use crate::checkout;
use crate::output::{Failure, Output};
use parbake::binding::Tensor;
use parbake::memory::Memory;
use parbake::trial::Trial;
use parbake::{Goal, Keys, Library, Place, Stream, driver};
use parbake_codegen::artifact::{self, Made};
use parbake_codegen::baking::{self, Job, Only, Packing};
use parbake_codegen::toolchain::find::find_nvcc_with;
use parbake_codegen::toolchain::{NvccSettings, Search, Toolchain};
use parbake_model::bundle::{Bundle, LEVEL};
use parbake_model::dtype::DType;
use parbake_model::identity::{Profile, Spec};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Target, Toolkit};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Measures ops beside their peers; or, with a word behind it, baking, calling, loading and large bundles.
///
/// Ops are measured by `python -m parbake.bench`, which needs PyTorch: each result is checked, with cold caches, and the
/// rows say how they were timed.
///
///   parbake bench --op 'norm/*' --rows rows.jsonl
///
///   parbake bench report rows.jsonl -o report.html
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    ops: ops::Args,
}

#[derive(clap::Subcommand)]
enum What {
    /// From a spec to a cubin, from a family to a bundle, from a bundle to a launch
    ///
    /// Compilers that are missing are installed first. Timer: the monotonic clock of this process.
    Bake {
        /// Repetitions of each compilation
        #[arg(long, default_value_t = 15)]
        n: usize,
        /// Leaves out nvcc
        #[arg(long)]
        no_nvcc: bool,
        /// Only what needs no compiler: opening, loading, launching from this bundle
        #[arg(long, value_name = "FILE")]
        bundle: Option<std::path::PathBuf>,
    },
    /// What a call costs its caller before the kernel runs: checks, the launch, each door
    ///
    /// On the first GPU, else on the host target, where the kernel itself is part of a call.
    Call {
        /// Repetitions of 200 calls
        #[arg(long, default_value_t = 31)]
        n: usize,
    },
    /// A kernel that exists already: opening the library, keys, a hit in the store and in the registry
    ///
    /// Runs in a temporary workspace, on the host target and on the first GPU if there is one.
    Lifecycle {
        /// Repetitions
        #[arg(long, default_value_t = 41)]
        n: usize,
    },
    /// A large bundle: opening it, with and without its signature, holding it, looking something up
    ///
    /// The bundle is made of small real images in a temporary folder. Its file is in the system's memory: what is
    /// measured is our work, and not the disk.
    Open {
        /// How many images it holds
        #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
        images: u32,
        /// Repetitions, at least 20
        #[arg(long, default_value_t = 41)]
        n: usize,
        /// Holds this bundle open and prints what each time costs in memory: what the command runs in a process of its own
        #[arg(long, hide = true, value_name = "FILE")]
        hold: Option<std::path::PathBuf>,
    },
    /// Rows of ops as one page: ratios, roofline, distribution, and what became slower since an earlier run
    Report(report::Args),
}

/// One figure.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    n: usize,
    median: f64,
    low: f64,
    high: f64,
    note: String,
}

#[derive(Debug, Serialize)]
struct Rows {
    machine: String,
    rows: Vec<Row>,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let Some(what) = args.what else { return Err(ops::run(&args.ops, &config, out.json).into()) };
    let rows = match what {
        What::Report(args) => return report::run(&args, out),
        What::Bake { n, no_nvcc, bundle } => bake(n.max(3), no_nvcc, bundle, &config, out)?,
        What::Call { n } => call::run(n.max(3), &config)?,
        What::Lifecycle { n } => lifecycle::run(n.max(3), &config)?,
        What::Open { n, hold: Some(bundle), .. } => {
            let grown = open::hold(&bundle, n)?;
            out.show(&grown, || format!("{grown:?}"));
            return Ok(());
        }
        What::Open { images, n, hold: None } => open::run(images as usize, n)?,
    };
    let log = match parbake::log::BUILT_IN {
        true => format!("API log at level {}", parbake::log::level()),
        false => "built without the API log".to_owned(),
    };
    let machine =
        format!("{} processors, {}, {log}", std::thread::available_parallelism().map_or(1, usize::from), gpu());
    let rows = Rows { machine, rows };
    out.show(&rows, || text(&rows));
    Ok(())
}

fn bake(
    n: usize,
    no_nvcc: bool,
    bundle: Option<std::path::PathBuf>,
    config: &Config,
    out: Output,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    match bundle {
        Some(path) => {
            let bytes = std::fs::read(&path).map_err(|e| {
                Report::new("PB-3006", Class::Usage, format!("cannot read {}", path.display())).caused_by(e)
            })?;
            serve(config, &bytes, &mut rows)?;
        }
        None => {
            checkout::need(config, &[("12.9", false), ("13.0", !no_nvcc)], out)?;
            let library = Library::open(config.clone().without_bundles())?;
            compile(&library, n, no_nvcc, &mut rows)?;
            let bytes = family(&library, &mut rows)?;
            serve(config, &bytes, &mut rows)?;
        }
    }
    Ok(rows)
}

fn gpu() -> String {
    match driver::ready() {
        Some(r) => r
            .devices
            .iter()
            .map(|d| format!("{} (driver of CUDA {})", d.name, r.version))
            .collect::<Vec<_>>()
            .join(", "),
        None => "no GPU".to_owned(),
    }
}

fn text(rows: &Rows) -> String {
    let mut text = format!(
        "{}\n{:<46}{:>10}  {:>10} {:>10}  {:<6}{:>5}  note\n",
        rows.machine, "what", "median", "low", "high", "unit", "n"
    );
    for r in &rows.rows {
        text += &format!(
            "{:<46}{:>10.3}  {:>10.3} {:>10.3}  {:<6}{:>5}  {}\n",
            r.what, r.median, r.low, r.high, r.unit, r.n, r.note
        );
    }
    text
}

/// Times `n` calls one by one.
fn sample<E>(n: usize, mut call: impl FnMut() -> Result<(), E>) -> Result<Vec<f64>, E> {
    (0..n)
        .map(|_| {
            let start = Instant::now();
            call()?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect()
}

fn row(what: impl Into<String>, unit: &'static str, scale: f64, mut seconds: Vec<f64>, note: impl Into<String>) -> Row {
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| seconds[((seconds.len() - 1) as f64 * share).round() as usize] * scale;
    Row { what: what.into(), unit, n: seconds.len(), median: at(0.5), low: at(0.0), high: at(1.0), note: note.into() }
}

/// One spec by each compiler, on one thread, one after the other in turn.
fn compile(library: &Library, n: usize, no_nvcc: bool, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let target: Target = "90a".parse().map_err(parbake::Error::from)?;
    let op = library.op("rmsnorm")?;
    let spec = library.spec(op, &[("dtype".into(), "bf16".into())], target)?;
    let mut toolchains: Vec<std::sync::Arc<dyn Toolchain>> = Vec::new();
    for version in [Toolkit { major: 12, minor: 9 }, Toolkit { major: 13, minor: 0 }] {
        toolchains.push(library.toolchain(target, Some(version))?);
    }
    if !no_nvcc {
        let config = library.config();
        let search = Search { explicit: None, toolchains: config.toolchains.clone(), want: None, driver: None, target };
        let launcher = config.nvcc_launcher.as_ref().map(std::path::PathBuf::from);
        let settings = NvccSettings { launcher, ..NvccSettings::default() };
        toolchains.push(find_nvcc_with(&search, &settings).map_err(|e| e.report())?);
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); toolchains.len()];
    for _ in 0..n {
        // Interleaved, so that a busy moment of the machine falls on all of them.
        for (toolchain, times) in toolchains.iter().zip(&mut times) {
            times.extend(sample(1, || make(library, op, &spec, target, &**toolchain).map(drop))?);
        }
    }
    let medians: Vec<f64> = times.iter().map(|t| row("", "s", 1.0, t.clone(), "").median).collect();
    for ((toolchain, times), median) in toolchains.iter().zip(times).zip(&medians) {
        let kind = toolchain.kind().to_string();
        let version = toolchain.toolkit().map(|t| t.to_string()).unwrap_or_default();
        let ratio = if kind == "nvcc" {
            format!("{:.1} times nvrtc {version} in the same run", median / medians[1])
        } else {
            spec.uri.clone()
        };
        rows.push(row(format!("spec to cubin, {kind} {version}"), "ms", 1e3, times, ratio));
    }
    Ok(())
}

/// Plans, compiles and judges, without the store.
fn make(
    library: &Library,
    op: parbake::OpId,
    spec: &Spec,
    target: Target,
    toolchain: &dyn Toolchain,
) -> Result<Made, Report> {
    let planned = library.build_key(op, spec, target, toolchain, Profile::Release);
    let Keys { source_key, build_key } = planned.map_err(|e| e.report())?;
    let manifest = library.plan(op, spec, target, toolchain, Profile::Release).map_err(|e| e.report())?;
    artifact::compile(spec, &manifest, toolchain, source_key, build_key)
}

/// The whole norm family for four architectures, from nothing.
fn family(library: &Library, rows: &mut Vec<Row>) -> Result<Vec<u8>, Failure> {
    let targets = Target::parse_list("80,90a,100f,120f").map_err(parbake::Error::from)?;
    let plan = baking::plan(library.ops().map(|(_, op)| op), "norm/*", &Only::new(), &targets)?;
    let mut toolchains = BTreeMap::new();
    for &target in &targets {
        toolchains.insert(target, library.toolchain(target, None)?);
    }
    let start = Instant::now();
    let make = |job: &Job<'_>| {
        make(
            library,
            library.op(&job.op.name).map_err(|e| e.report())?,
            &job.spec,
            job.target,
            &*toolchains[&job.target],
        )
    };
    let jobs = library.config().jobs;
    let made = baking::run(&plan, jobs, &make, &|_, _| {})?;
    let compiled = start.elapsed().as_secs_f64();
    let nvfatbin = |target, toolkit| packer(library, target, toolkit);
    let start = Instant::now();
    let bytes = baking::pack(
        &plan,
        made,
        &Packing { params: &params(library), nvfatbin: &nvfatbin, level: LEVEL, threads: jobs, keep: None },
    )?;
    let packed = start.elapsed().as_secs_f64();
    let images = plan.jobs.len();
    rows.push(row(
        "norm family, 4 architectures: compile",
        "s",
        1.0,
        vec![compiled],
        format!("{images} images, {:.1}/s on {jobs} threads", images as f64 / compiled),
    ));
    rows.push(row("norm family, 4 architectures: pack", "s", 1.0, vec![packed], format!("zstd level {LEVEL}")));
    rows.push(row("norm family, 4 architectures: bundle", "kB", 1e-3, vec![bytes.len() as f64], "size, no time"));
    Ok(bytes)
}

/// From a bundle's bytes to a launch.
fn serve(config: &Config, bytes: &[u8], rows: &mut Vec<Row>) -> Result<(), Failure> {
    let folder = tempfile::tempdir()
        .map_err(|e| Report::new("PB-1117", Class::Environment, "no temporary folder").caused_by(e))?;
    let path = folder.path().join("bench.pbk");
    std::fs::write(&path, bytes)
        .map_err(|e| Report::new("PB-1117", Class::Environment, "cannot write the bundle").caused_by(e))?;
    let open = || std::fs::File::open(&path).ok().and_then(|f| Bundle::open(f).ok());
    let broken = || Report::new("PB-3007", Class::Failed, "the bundle that was just written does not open");
    rows.push(row("open a bundle", "ms", 1e3, sample(31, || open().map(drop).ok_or_else(broken))?, ""));
    let first = |bundle: Bundle| bundle.entries().first().copied().and_then(|e| bundle.image(&e).ok()).map(drop);
    rows.push(row(
        "open a bundle and inflate one image",
        "ms",
        1e3,
        sample(31, || open().and_then(first).ok_or_else(broken))?,
        "",
    ));

    // Without a GPU the registry is measured with the kernel that the host target compiles.
    let place = driver::first().map_or(Place::Host, |device| Place::Cuda(device.ordinal));
    let bundles = if place == Place::Host { Vec::new() } else { vec![path.clone()] };
    let library = Library::open(Config { bundles, ..config.clone().without_bundles() })?;
    let op = library.op("rmsnorm")?;
    // The context exists before the clock starts.
    let mut memory = Memory::new(place, &vec![0x3c; 3 << 16])?;
    let goal = library.goal(place)?;
    let spec = library.spec(op, &[("dtype".into(), "bf16".into())], goal.target())?;
    let start = Instant::now();
    let (kernel, from) = library.kernel(op, &spec, place)?;
    rows.push(row(
        format!("first kernel, from {from}"),
        "ms",
        1e3,
        vec![start.elapsed().as_secs_f64()],
        kernel.decision.target.map(|t| t.to_string()).unwrap_or_default(),
    ));

    let trial = Trial::example(library.definition(op), BTreeMap::from([("dtype".into(), "bf16".into())]));
    let outcome = trial.run(&library, op, place)?;
    if !outcome.ok {
        return Err(super::run::wrong(&outcome).into());
    }
    let id = library.id(op, &spec)?;
    const MANY: u32 = 100_000;
    let hits = sample(9, || {
        (0..MANY).try_for_each(|_| library.hit(std::hint::black_box(id), place).map(drop).ok_or_else(broken))
    })?;
    rows.push(row("registry hit", "ns", 1e9 / f64::from(MANY), hits, "checked by a run"));
    if let Goal::Device(..) = goal {
        launches(&library, op, place, &mut memory, rows)?;
    }
    Ok(())
}

/// What a launch costs the caller: the whole call, arguments checked, nothing waited for.
fn launches(
    library: &Library,
    op: parbake::OpId,
    place: Place,
    memory: &mut Memory,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let base = memory.pointer() as usize;
    let tensor = |at: usize, shape: &[i64]| {
        Tensor::dense((base + at) as *mut std::ffi::c_void, DType::Bf16, shape).expect("bug: two dimensions")
    };
    let arguments = [tensor(0, &[1, 4096]), tensor(1 << 16, &[1, 4096]), tensor(2 << 16, &[4096])];
    const MANY: u32 = 200;
    let mut prepared = library.prepare_call(op, &arguments, &[1e-6, 0.0], place)?.expect("bug: one row is work");
    // Launches on the default stream also look at every other stream.
    let own = parbake::memory::stream(place)?;
    let (mut raw, mut on_default, mut checked) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..31 {
        for (stream, times) in [(own, &mut raw), (Stream::DEFAULT, &mut on_default)] {
            // SAFETY: the memory holds all three tensors, and lives until it is read below.
            times.extend(sample(1, || (0..MANY).try_for_each(|_| unsafe { prepared.launch(stream) }))?);
            memory.read()?;
        }
        let call = || {
            // SAFETY: as above.
            (0..MANY).try_for_each(|_| unsafe { library.call(op, &arguments, &[1e-6, 0.0], place, own).map(drop) })
        };
        checked.extend(sample(1, call)?);
        memory.read()?;
    }
    let scale = 1e6 / f64::from(MANY);
    rows.push(row("raw launch", "µs", scale, raw, format!("{MANY} in a row, one row of 4096")));
    rows.push(row("launch on the default stream", "µs", scale, on_default, "the same"));
    rows.push(row("checked call, launch included", "µs", scale, checked, format!("{MANY} in a row, one row of 4096")));
    let checks =
        sample(31, || (0..MANY).try_for_each(|_| library.prepare_call(op, &arguments, &[1e-6, 0.0], place).map(drop)))?;
    rows.push(row("check, choose, look up, arrange", "µs", scale, checks, "nothing launched"));
    Ok(())
}
