//! Probing: each tactic runs in a process of its own, so that what hangs or crashes takes nothing else with it.

use super::points::Point;
use super::{Args, absolute, compile, results};
use crate::cmd::build::{check_output, write};
use crate::cmd::run;
use crate::output::{Failure, Output, note};
use crate::select;
use crate::text::{Table, count, entries};
use parbake::tactic::TacticError;
use parbake::{Library, Place, Site};
use parbake_codegen::toolchain::process::{self, ProcessError};
use parbake_model::VERSION;
use parbake_model::blocklist::{Blocklist, Entry, Seen, What};
use parbake_model::identity::Spec;
use parbake_model::report::{Class, Report};
use serde::Serialize;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What a tactic did.
#[derive(Serialize)]
struct Tried {
    point: String,
    tactic: String,
    uri: String,
    /// None if it did what it should.
    what: Option<What>,
    /// What was seen; or why it could not be tried.
    why: Option<String>,
    tried: bool,
}

/// The codes of errors with which a kernel ends its context: rules of the host target, and faults of a device.
const FAULTS: [&str; 2] = ["PB-2104", "PB-2122"];

/// Runs one tactic in this process: what a probe starts.
pub(super) fn candidate(
    library: &Library,
    point: &Point,
    place: Place,
    tactic: &str,
    out: Output,
) -> Result<(), Failure> {
    let texts: Vec<String> = tactic.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect();
    let mut values = Vec::new();
    for (name, value) in select::pairs(&texts)? {
        let bad = |_| Report::new("PB-3005", Class::Usage, "the value of a tactic is a number").with("got", &value);
        values.push((name, value.parse::<u32>().map_err(bad)?));
    }
    let outcome = library.try_tactic(point.op, &point.trial, place, &values)?;
    out.show(&outcome, || outcome.uri.clone());
    if outcome.ok { Ok(()) } else { Err(Failure::shown(vec![run::wrong(&outcome)])) }
}

pub(super) fn run(library: &Library, points: &[Point], place: Place, args: &Args, out: Output) -> Result<(), Failure> {
    let path = args.out.as_deref().expect("bug: `--probe` requires `--out`");
    let mut list = read(path)?;
    check_output(path)?;
    let target = library.goal(place)?.target();
    let mut all = Vec::new();
    for point in points {
        compile(library, point, Site::Target(target), place)?;
        for legal in library.legal(point.op, &point.trial, place)? {
            let tried = attempt(point, &legal.spec, args)?;
            let at = list.entries.iter().position(|e| e.names(&legal.spec) && e.concerns(target));
            match (tried.what, at) {
                (Some(what), None) => {
                    let why = tried.why.clone().unwrap_or_default();
                    list.entries.push(entry(library, point, &legal.spec, place, (what, why)));
                }
                (None, Some(i)) if tried.tried => note(format!(
                    "note: entry {} of {} bars {}, which did what it should here: it stays until you remove it",
                    i + 1,
                    path.display(),
                    legal.spec
                )),
                _ => {}
            }
            let word = tried.what.map_or("ok".to_owned(), |what| what.to_string());
            let word = if tried.tried { word } else { "not tried".to_owned() };
            let why = tried.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            out.say(format!("{}, {}: {word}{why}", tried.point, tried.tactic));
            all.push(tried);
        }
    }
    write(path, list.to_json().as_bytes())?;
    out.show(&all, || summary(&all, path, &list));
    let missed = all.iter().filter(|t| !t.tried).count();
    if missed == 0 {
        return Ok(());
    }
    Err(Failure::shown(vec![
        Report::new("PB-2232", Class::Failed, format!("{} could not be tried", count(missed, "tactic")))
            .with("of", count(all.len(), "tactic"))
            .help("what was found is in the file; the lines above say why the others did not run"),
    ]))
}

fn summary(all: &[Tried], path: &Path, list: &Blocklist) -> String {
    let bad = all.iter().filter(|t| t.what.is_some()).count();
    let mut table = Table::plain();
    table.row(["tried", &all.iter().filter(|t| t.tried).count().to_string()]);
    table.row(["to be blocked", &bad.to_string()]);
    table.row(["blocklist", &format!("{}, {}", path.display(), entries(list.entries.len()))]);
    format!("{}to use it: PARBAKE_BLOCKLIST={}", table.text(), absolute(path))
}

/// What the file holds already; it is not replaced if it is anything else.
fn read(path: &Path) -> Result<Blocklist, Report> {
    let Some(text) = results::before(path)? else { return Ok(Blocklist::new(Vec::new())) };
    let list = Blocklist::from_json(&text);
    list.map_err(|source| TacticError::Blocklist { path: path.to_owned(), source }.report())
}

/// An entry of exactly this tactic on devices like this one: under every driver, toolkit and library, until a person knows
/// better.
fn entry(library: &Library, point: &Point, spec: &Spec, place: Place, (what, reason): (What, String)) -> Entry {
    let machine = library.machine(place).ok();
    let seen =
        machine.map(|m| Seen { device: m.device, driver: m.driver, library: VERSION.to_owned(), shape: point.shape() });
    Entry {
        op: spec.op.clone(),
        axes: spec.axes.iter().cloned().collect(),
        tactic: spec.tactic.iter().cloned().collect(),
        targets: library.goal(place).map(|goal| goal.target()).into_iter().collect(),
        driver: None,
        toolkit: None,
        library: None,
        what,
        reason,
        seen,
    }
}

/// Runs a tactic in a process of its own, and says how that ended.
fn attempt(point: &Point, spec: &Spec, args: &Args) -> Result<Tried, Failure> {
    let pairs: Vec<String> = spec.tactic.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let own = std::env::current_exe().map_err(|error| {
        Report::new("PB-3003", Class::Environment, "this program cannot be started again").caused_by(error)
    })?;
    let mut command = Command::new(own);
    command.args(["--json", "tune", &spec.op, "--target", &args.target, "--candidate", &pairs.join(",")]);
    command.args(point.trial.axes.iter().map(|(n, v)| format!("{n}={v}")));
    command.args(point.trial.dims.iter().flat_map(|(n, v)| ["--shape".to_owned(), format!("{n}={v}")]));
    command.args(args.scalar.iter().flat_map(|s| ["--scalar", s]));
    command.args(args.with.iter().flat_map(|w| ["--with", w]));
    for bundle in &args.bundle {
        command.arg("--bundle").arg(bundle);
    }
    for setting in ["PARBAKE_BLOCKLIST", "PARBAKE_TACTICS", "PARBAKE_TUNED"] {
        command.env_remove(setting);
    }
    let ended = process::run(command, Duration::from_secs(args.limit));
    let (tried, what, why) = match ended {
        Ok(ended) => judge(&ended),
        Err(ProcessError::TimedOut { limit, .. }) => {
            (true, Some(What::Hang), Some(format!("it did not end within {} s", limit.as_secs())))
        }
        Err(error) => (false, None, Some(error.to_string())),
    };
    Ok(Tried { point: point.words(), tactic: pairs.join(" "), uri: spec.uri.clone(), what, why, tried })
}

fn judge(ended: &process::Outcome) -> (bool, Option<What>, Option<String>) {
    if let Some(signal) = ended.status.signal() {
        return (true, Some(What::Crash), Some(format!("its process died of signal {signal}")));
    }
    let said: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    match said.get("ok").and_then(serde_json::Value::as_bool) {
        Some(true) => return (true, None, None),
        Some(false) => return (true, Some(What::Wrong), Some(text(&said["wrong"]))),
        None => {}
    }
    let error = &said["errors"][0];
    let why = match error["code"].as_str() {
        Some(code) => format!("{code} {}", text(&error["error"])),
        None => format!("{}: {}", ended.status, ended.stderr.lines().next().unwrap_or_default()),
    };
    let fault = error["code"].as_str().is_some_and(|code| FAULTS.contains(&code));
    (fault, fault.then_some(What::Crash), Some(why))
}
