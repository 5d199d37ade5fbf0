//! `parbake demo`: the main job, once, on this machine.

use super::build::{self, Bake};
use crate::checkout;
use crate::output::{Failure, Output};
use parbake::Library;
use parbake::context::TargetContext;
use parbake::driver;
use parbake_codegen::baking::Only;
use parbake_model::Target;
use parbake_model::identity::Profile;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::target::Arch;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Bakes two ops for four architectures, runs from the bundle, from JIT and from the store, and checks every number.
///
/// Runs on the GPU if there is one, else on the CPU. Compilers that are missing are installed first, as pinned Python
/// wheels. The bundle is kept; what is compiled on demand goes to a fresh workspace each time.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The architectures of the demo's fleet: Ampere, Hopper, Blackwell for data centres and for desks.
const FLEET: &str = "80,90a,100f,120f";
/// The fleet's element types; f32 is left for JIT.
const BAKED: [&str; 2] = ["f16", "bf16"];

/// The first architecture that converts bf16.
const BF16_SINCE: Arch = Arch(80);

/// One step of the demo: a run in a process of its own.
struct Step {
    op: &'static str,
    /// `bf16` stands for f16 on a GPU that is older than bf16.
    dtype: &'static str,
    from: &'static str,
    why: &'static str,
}

const STEPS: [Step; 4] = [
    Step { op: "rmsnorm", dtype: "bf16", from: "bundle", why: "baked ahead" },
    Step { op: "fused_add_rmsnorm", dtype: "f16", from: "bundle", why: "baked ahead" },
    Step { op: "rmsnorm", dtype: "f32", from: "jit", why: "nobody baked it: compiled in this process" },
    Step { op: "rmsnorm", dtype: "f32", from: "store", why: "the same in a second process" },
];

#[derive(Serialize)]
struct Summary {
    bundle: build::Baked,
    runs_on: String,
    steps: Vec<Value>,
    gap: Vec<String>,
    seconds: f64,
    ok: bool,
}

pub(crate) fn run(_: Args, config: Config, out: Output) -> Result<(), Failure> {
    let start = Instant::now();
    let ready = driver::ready();
    let gpu = ready.and_then(|r| r.devices.first());
    let runs_on = match gpu {
        Some(device) => format!("{} (sm_{})", device.name, device.arch),
        None => "the CPU, through the host target (no GPU here)".to_owned(),
    };
    out.say(format!("Parbake {} runs on {runs_on}\n", parbake_model::VERSION));

    out.say(format!("1. Bake rmsnorm and fused_add_rmsnorm for a fleet: {FLEET}"));
    let mut requested = Target::parse_list(FLEET).map_err(parbake::Error::from)?;
    if gpu.is_none() {
        requested.insert(0, Target::Host);
    }
    // The fleet, and this GPU itself where nothing of the fleet runs on it.
    let context =
        TargetContext { devices: gpu.cloned().into_iter().collect(), driver: ready.map(|r| r.version), requested };
    let targets = context.targets();
    if let Some(own) = targets.iter().find(|t| **t != Target::Host && !context.requested.contains(t)) {
        out.say(format!("   and for {own}, the GPU here"));
    }
    let bf16 = gpu.is_none_or(|device| device.arch >= BF16_SINCE);
    let only = Only::from([("dtype".to_owned(), BAKED.map(str::to_owned).to_vec())]);
    let folder = config.workspace.join("demo");
    std::fs::create_dir_all(&folder).map_err(|e| unwritable(&folder, e))?;
    let output = folder.join("norm.pbk");
    // A bundle that is tried out, not shipped: fast compression.
    let what = Bake {
        lock: None,
        op: "rmsnorm,fused_add_rmsnorm",
        only: &only,
        targets: &targets,
        output: &output,
        toolkit: None,
        min_driver: None,
        level: 9,
        profile: Profile::Release,
        cut: None,
    };
    let settings = config.clone().without_bundles();
    let library = Library::open(settings.clone())?;
    checkout::need_for(&library, &targets, out)?;
    // Opened anew: what was not found before may have been installed.
    let library = Library::open(settings)?;
    let baked = build::bake(&library, &what, out)?;
    let how = if baked.up_to_date {
        "up to date".to_owned()
    } else {
        format!("{} compiled, {} from the store", baked.compiled, baked.from_store)
    };
    out.say(format!(
        "   {} images for {} targets in {:.0} KB: {how}, {:.1} s\n",
        baked.images,
        baked.targets.len(),
        baked.bytes as f64 / 1e3,
        baked.seconds
    ));

    out.say("2. Run, each in a process of its own, and compare with float64");
    let fresh = tempfile::tempdir().map_err(|e| unwritable(&std::env::temp_dir(), e))?;
    let mut steps = Vec::new();
    let mut failed = Vec::new();
    out.say(format!(
        "   {:<24}{:<8}{:<9}{:>10}{:>10}{:>11}   {:<11}{}",
        "op", "from", "target", "compile", "load", "launch", "max error", ""
    ));
    for step in STEPS {
        let dtype = if step.dtype == "bf16" && !bf16 { "f16" } else { step.dtype };
        let step = Step { dtype, ..step };
        let outcome = child(&output, fresh.path(), step.op, step.dtype)?;
        let ok = outcome["ok"] == true && outcome["from"] == step.from;
        out.say(row(&step, &outcome, ok));
        if !ok {
            failed
                .push(format!("{} {}: expected a right result from {}, got {outcome}", step.op, step.dtype, step.from));
        }
        steps.push(outcome);
    }

    out.say("\n3. The same with JIT off and nothing stored: the gap is named, with the command that closes it");
    let gap = gap(&output)?;
    gap.iter().for_each(|line| out.say(format!("   {line}")));
    let seconds = start.elapsed().as_secs_f64();
    let ok = failed.is_empty();
    if out.json {
        out.show(&Summary { bundle: baked, runs_on, steps, gap, seconds, ok }, String::new);
    }
    if !ok {
        let report = Report::new("PB-3002", Class::Failed, "the demo did not go as it should");
        return Err(Failure::shown(vec![failed.into_iter().fold(report, |r, f| r.with("step", f))]));
    }
    out.say(format!("\nAll right, in {seconds:.1} s. The bundle is {}", output.display()));
    out.say("Next: `parbake inspect` it, `parbake why rmsnorm dtype=f32`, or docs/add-a-kernel.md");
    Ok(())
}

fn unwritable(path: &Path, error: std::io::Error) -> Report {
    Report::new("PB-1117", Class::Environment, format!("cannot write {}", path.display())).caused_by(error)
}

/// This program, with the store on and without settings that would change what the demo shows.
fn itself() -> Command {
    let mut command = checkout::itself();
    for name in ["PARBAKE_ARCHS", "PARBAKE_AOT_ARCHS", "PARBAKE_LOADER_LOG"] {
        command.env_remove(name);
    }
    command.env("PARBAKE_CACHE", "on");
    command
}

/// Runs one op in another process, and gives what it printed.
fn child(bundle: &Path, workspace: &Path, op: &str, dtype: &str) -> Result<Value, Report> {
    let mut command = itself();
    command.args(["--json", "run", op, &format!("dtype={dtype}"), "--shape", "rows=16", "--shape", "hidden=4096"]);
    command.env("PARBAKE_BUNDLES", bundle).env("PARBAKE_WORKSPACE", workspace).env("PARBAKE_JIT", "on");
    let output = command
        .output()
        .map_err(|e| Report::new("PB-3003", Class::Environment, "cannot start a process").caused_by(e))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Report::new("PB-3003", Class::Failed, format!("`parbake run {op} dtype={dtype}` failed")).caused_by(said)
    })
}

/// What a run says that may not compile and finds nothing.
fn gap(bundle: &Path) -> Result<Vec<String>, Report> {
    let empty = tempfile::tempdir().map_err(|e| unwritable(&std::env::temp_dir(), e))?;
    let mut command = itself();
    command.args(["run", "rmsnorm", "dtype=f32", "--target", "90a"]);
    command.env("PARBAKE_BUNDLES", bundle).env("PARBAKE_WORKSPACE", empty.path()).env("PARBAKE_JIT", "off");
    let output = command
        .output()
        .map_err(|e| Report::new("PB-3003", Class::Environment, "cannot start a process").caused_by(e))?;
    let said = String::from_utf8_lossy(&output.stderr).replace(&empty.path().display().to_string(), "<workspace>");
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    lines.push(format!("exit status {}", output.status.code().unwrap_or(-1)));
    Ok(lines)
}

fn row(step: &Step, outcome: &Value, ok: bool) -> String {
    let number = |name: &str, unit: &str| outcome[name].as_f64().map_or("-".to_owned(), |v| format!("{v:.1} {unit}"));
    let text = |name: &str| outcome[name].as_str().unwrap_or("-").to_owned();
    format!(
        "   {:<24}{:<8}{:<9}{:>10}{:>10}{:>11}   {:<11}{} {}",
        format!("{} {}", step.op, step.dtype),
        text("from"),
        text("target"),
        number("compile_ms", "ms"),
        number("load_ms", "ms"),
        number("launch_us", "µs"),
        outcome["max_rel_err"].as_f64().map_or("-".to_owned(), |v| format!("{v:.1e}")),
        if ok { "ok" } else { "WRONG" },
        step.why
    )
}
