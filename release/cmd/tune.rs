//! `parbake tune`: measures the tactics of an op, keeps what was fastest, and finds those that must not be launched.

mod points;
mod probe;
mod results;
mod watch;

use super::build::{check_output, write};
use crate::output::{Failure, Output};
use crate::select;
use crate::text::Table;
use parbake::tune::{Effort, Tuned};
use parbake::{Library, Place, Site, Wanted, driver};
use parbake_model::report::{Class, Report};
use parbake_model::settings::{Config, TuneTimer};
use parbake_model::tuned::Timing;
use points::Point;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use watch::Watch;

/// Measures the tactics of an op beside each other, and writes which was fastest to a file that PARBAKE_TUNED names.
///
/// Axes and shape symbols take lists: each combination is a point of its own. Every tactic is compared with the float64
/// reference before it is measured. With `--probe` nothing is measured: each tactic runs in a process of its own, and those
/// that hang, crash or compute something else are written to a blocklist, for PARBAKE_BLOCKLIST.
///
///   parbake tune rmsnorm dtype=bf16 --shape rows=1,64,4096 --shape hidden=4096 --out tuned.json
///
///   parbake tune rmsnorm dtype=bf16,f16 --probe --out blocked.json
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The op
    #[arg(required_unless_present = "list")]
    op: Option<String>,
    /// Values for each axis, as in `dtype=bf16,f16`
    #[arg(value_name = "AXIS=VALUES")]
    values: Vec<String>,
    /// Shape symbols, as in `rows=1,16,256` [default: the first example of the op's trace template]
    #[arg(long, value_name = "SYM=N,…")]
    shape: Vec<String>,
    /// Scalars, as in `eps=1e-5`
    #[arg(long, value_name = "NAME=X")]
    scalar: Vec<String>,
    /// Optional tensors that are given [default: those of the op's trace template]
    #[arg(long, value_name = "NAME")]
    with: Vec<String>,
    /// `auto` is the first GPU if there is one, else `host`
    #[arg(long, default_value = "auto", value_parser = ["auto", "host"])]
    target: String,
    /// A bundle to look in first; may be repeated
    #[arg(long, value_name = "FILE")]
    bundle: Vec<PathBuf>,
    /// Measures only so many tactics of each point, the launcher's best
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=16))]
    most: u32,
    /// Samples of each tactic [default: 15 on a GPU, 5 on the host]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: Option<u32>,
    /// `auto`, `events` or `globaltimer` [default: PARBAKE_TUNE_TIMER]
    #[arg(long, value_parser = timer)]
    timer: Option<TuneTimer>,
    /// The file that results are added to; with `--probe` the blocklist
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Finds tactics that hang, crash or compute something else
    #[arg(long, requires = "out")]
    probe: bool,
    /// How long a tactic may run at once
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    /// Says which results of PARBAKE_TUNED are used here, and why others are not
    #[arg(long, conflicts_with_all = ["op", "probe", "out"])]
    list: bool,
    /// What a probe runs in a process of its own
    #[arg(long, hide = true, value_name = "TACTIC=VALUE,…")]
    candidate: Option<String>,
}

fn timer(text: &str) -> Result<TuneTimer, String> {
    TuneTimer::parse(text).ok_or_else(|| "expected auto, events or globaltimer".to_owned())
}

/// A point, and what came of it.
#[derive(Serialize)]
struct Measured {
    point: String,
    place: String,
    #[serde(flatten)]
    tuned: Tuned,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    let place = match args.target.as_str() {
        "host" => Place::Host,
        _ => driver::first().map_or(Place::Host, |device| Place::Cuda(device.ordinal)),
    };
    if args.list {
        return results::list(&Library::open(config)?, place, out);
    }
    // What is measured is what the launcher offers: nothing forced, and nothing that was found before.
    config.tactics.clear();
    config.tuned.clear();
    config.tune_timer = args.timer.unwrap_or(config.tune_timer);
    if args.probe || args.candidate.is_some() {
        config.blocklist.clear();
    }
    let name = args.op.clone().unwrap_or_default();
    let library = Library::open(select::with_bundles(config, &args.bundle)?)?;
    let points = points::of(&library, &name, &args)?;
    match &args.candidate {
        Some(tactic) => probe::candidate(&library, &points[0], place, tactic, out),
        None if args.probe => probe::run(&library, &points, place, &args, out),
        None => measure(&library, &points, place, &args, out),
    }
}

fn measure(library: &Library, points: &[Point], place: Place, args: &Args, out: Output) -> Result<(), Failure> {
    let mut kept = args.out.as_deref().map(results::read).transpose()?.unwrap_or_default();
    args.out.as_deref().map(check_output).transpose()?;
    let usual = if place == Place::Host { 5 } else { 15 };
    let effort = Effort { most: args.most as usize, samples: args.samples.unwrap_or(usual) as usize };
    let mut all = Vec::new();
    for point in points {
        compile(library, point, Site::Place(place), place)?;
        let watch = Watch::start(point.words(), Duration::from_secs(args.limit), out);
        let tuned = library.tune(point.op, &point.trial, place, effort, &|tactic| watch.at(tactic))?;
        drop(watch);
        if let Some(best) = &tuned.best {
            results::add(library.definition(point.op), &mut kept, best.clone());
        }
        let measured = Measured { point: point.words(), place: place.to_string(), tuned };
        out.say(text(&measured));
        all.push(measured);
    }
    if let Some(path) = &args.out {
        write(path, parbake_model::tuned::Tuned::new(kept).to_json().as_bytes())?;
    }
    out.show(&all, || match &args.out {
        Some(path) => format!("{}; to use it: PARBAKE_TUNED={}", path.display(), absolute(path)),
        None => "nothing was kept: `--out FILE` does".to_owned(),
    });
    let none: Vec<&str> = all.iter().filter(|m| m.tuned.best.is_none()).map(|m| m.point.as_str()).collect();
    if none.is_empty() {
        return Ok(());
    }
    Err(Failure::shown(vec![
        Report::new("PB-2231", Class::Failed, "no tactic could be measured")
            .with("of", none.join("; "))
            .help("the table says why, for each tactic"),
    ]))
}

/// Compiles what will run, side by side, before a clock runs. What fails is told of each tactic when it is its turn.
fn compile(library: &Library, point: &Point, site: Site, place: Place) -> Result<(), Failure> {
    let legal = library.legal(point.op, &point.trial, place)?;
    let wanted: Vec<_> = legal.into_iter().map(|l| Wanted { op: point.op, spec: l.spec, site }).collect();
    for each in wanted.chunks(library.config().jobs.max(1)) {
        let _ = library.prepare(each).inspect_err(|error| tracing::debug!(%error, "not prepared"));
    }
    Ok(())
}

fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

fn text(measured: &Measured) -> String {
    let Tuned { rows, best } = &measured.tuned;
    let timing: Option<&Timing> = rows.iter().find_map(|r| r.timing.as_ref());
    let how = timing.map_or(String::new(), |t| {
        let copies =
            if t.copies > 1 { format!(", {} copies of the arguments in turn", t.copies) } else { String::new() };
        format!(": {} samples by {}, {}{copies}", t.samples, t.timer, t.launch)
    });
    let mut table = Table::new(&[">RANK", "TACTIC", ">µs", ">10 %", ">90 %", ""]);
    for row in rows {
        let us = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.2}"));
        let t = row.timing.as_ref();
        let is_best = best.as_ref().zip(t).is_some_and(|(b, t)| *t == b.timing);
        let word = if is_best { "best".to_owned() } else { row.why.clone().unwrap_or_default() };
        let rank = row.rank.map_or("-".to_owned(), |rank| rank.to_string());
        let times = [t.map(|t| t.median_us), t.map(|t| t.low_us), t.map(|t| t.high_us)].map(us);
        table.row([rank, row.tactic.clone()].into_iter().chain(times).chain([word]));
    }
    format!("{} on {}{how}\n{}", measured.point, measured.place, table.text())
}
