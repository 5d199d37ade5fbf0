//! `parbake replay`: calls an op once more with the arguments of a dump, and compares.

use crate::output::{Failure, Output, note};
use crate::select;
use parbake::driver::{self, NoDevice};
use parbake::log::record::{Record, State};
use parbake::log::replay::{Compared, Difference, Replayed, Verdict};
use parbake::log::{DumpError, Dumped};
use parbake::{Error, Library, Place};
use parbake_codegen::toolchain::memory;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Suffix, Target};
use std::path::PathBuf;

/// Calls an op again with the arguments of a dump, and compares with what was recorded and with a float64 reference.
///
/// Dumps are what the API log leaves at PARBAKE_LOG=10. Ends with status 1 if the values differ or the call fails again.
///
///   parbake replay ~/.cache/parbake/dumps/20261130T113608-4711@node7-1-rmsnorm --target host
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of the dump
    #[arg(value_name = "DUMP")]
    dump: PathBuf,
    /// `auto` is what the call ran on: a GPU of that architecture if there is one, else the first, or the CPU
    #[arg(long, default_value = "auto")]
    target: String,
    /// How often to call it; all results must be the same, bit for bit
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u32,
    /// A bundle to look in first; may be repeated
    #[arg(long, value_name = "FILE")]
    bundle: Vec<PathBuf>,
}

impl From<DumpError> for Failure {
    fn from(error: DumpError) -> Self {
        error.report().into()
    }
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    if !(1..=1_000_000).contains(&args.times) {
        return Err(Report::new("PB-3192", Class::Usage, "--times is out of range")
            .with("expected", "1 to 1000000")
            .with("got", args.times.to_string())
            .into());
    }
    let dump = Dumped::open(&args.dump)?;
    dump.fits(memory::available())?;
    let place = place(&args.target, dump.record())?;
    let library = Library::open(select::with_bundles(config, &args.bundle)?)?;
    if dump.record().state != State::Done {
        note("note: the recorded call did not return well; this process may end as that one did");
    }
    let replayed = dump.replay(&library, place, args.times)?;
    out.show(&replayed, || text(&replayed));
    match replayed.ok {
        true => Ok(()),
        false => Err(Failure::shown(vec![wrong(&replayed)])),
    }
}

/// Where to run.
fn place(target: &str, recorded: &Record) -> Result<Place, Failure> {
    let wanted = match target {
        "host" => return Ok(Place::Host),
        "auto" => match &recorded.device {
            None => return Ok(Place::Host),
            Some(device) => Some(device.target),
        },
        text => Some(text.parse::<Target>().map_err(Error::from)?).filter(|t| *t != Target::Host),
    };
    let Some(wanted) = wanted else { return Ok(Place::Host) };
    let first = driver::first().map_err(Error::from)?;
    let devices = driver::ready().map(|r| r.devices.as_slice()).unwrap_or_default();
    match devices.iter().find(|d| wanted.arch() == Some(d.arch)) {
        Some(device) => Ok(Place::Cuda(device.ordinal)),
        None if target == "auto" => Ok(Place::Cuda(first.ordinal)),
        None => {
            let found = devices.iter().map(|d| Target::Sm(d.arch, Suffix::Baseline)).collect();
            Err(Error::NoDevice(NoDevice::Target { target: wanted, found }).into())
        }
    }
}

fn text(r: &Replayed) -> String {
    let mut lines = vec![format!("{} on {}, {}", r.op, r.place, r.uri)];
    lines.push(format!("  recorded  {}", recorded(r)));
    if let Some(error) = &r.error {
        lines.push(format!("  now       failed: {error}"));
    }
    lines.extend(r.outputs.iter().map(|o| format!("  {:9} {}", o.name, compared(o))));
    if let Some(reference) = &r.reference {
        let verdict = reference.wrong.as_deref().map_or("right".to_owned(), |wrong| format!("WRONG, {wrong}"));
        let (abs, rel) = (reference.max_abs_err, reference.max_rel_err);
        let tolerance = &reference.tolerance;
        lines.push(format!(
            "  reference {verdict}; max error {abs:.3e} absolute, {rel:.3e} relative; tolerance {tolerance}"
        ));
    }
    if r.runs > 1 {
        let verdict = if r.repeatable { "all the same, bit for bit" } else { "NOT all the same" };
        lines.push(format!("  runs      {}, {verdict}", r.runs));
    }
    let difference = |d: &Difference| format!("  differs   {}: recorded {}, now {}", d.what, d.recorded, d.now);
    lines.extend(r.differences.iter().map(difference));
    lines.join("\n")
}

fn recorded(r: &Replayed) -> String {
    match (&r.recorded, &r.recorded_error) {
        (State::Launched, _) => "the call never returned: its process died, or was still in it".to_owned(),
        (State::Failed, error) => format!("the call failed: {}", error.as_deref().unwrap_or("without a word")),
        (State::Done, _) if r.outputs.is_empty() && r.error.is_none() => {
            "the call returned; its values were not saved".to_owned()
        }
        (State::Done, _) => "the call returned".to_owned(),
    }
}

fn compared(o: &Compared) -> String {
    match o.verdict {
        Verdict::BitExact => "as recorded, bit for bit".to_owned(),
        Verdict::WithinTolerance => format!("as recorded within the tolerance, max difference {:.3e}", o.max_abs_err),
        Verdict::Differs => format!("DIFFERS from what was recorded: {}", o.wrong.as_deref().unwrap_or_default()),
    }
}

/// The report of a replay that does not match.
fn wrong(r: &Replayed) -> Report {
    if let Some(error) = &r.error {
        return Report::new("PB-3191", Class::Failed, format!("{}: the replayed call fails", r.op))
            .with("recorded", recorded(r))
            .with("now", error);
    }
    let mut report = Report::new("PB-3190", Class::Failed, format!("{}: the replay gives another result", r.op));
    for output in &r.outputs {
        if let Some(wrong) = &output.wrong {
            report = report.with("against the recorded values", wrong);
        }
    }
    if let Some(wrong) = r.reference.as_ref().and_then(|reference| reference.wrong.as_ref()) {
        report = report.with("against the reference", wrong);
    }
    if !r.repeatable {
        report = report.with("runs", format!("{} runs gave different bits", r.runs));
    }
    report.help("`differs` lines name what is not as it was when the call was recorded")
}
