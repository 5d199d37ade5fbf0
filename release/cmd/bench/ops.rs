//! `parbake bench` without a word behind it: ops beside their peers.
//!
//! The peers are Python, and PyTorch owns the memory and the graphs, so `python -m parbake.bench` measures. This program
//! finds a Python that can, and becomes it.

use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is handed over.
// The command has a group of the name that clap would give to this one.
#[derive(clap::Args)]
#[group(id = "ops")]
pub(super) struct Args {
    /// Ops by `family/op`, `op` or function; patterns, several with commas
    #[arg(long)]
    op: Option<String>,
    /// Workloads of docs/bench.md, with commas
    #[arg(long, value_name = "NAMES")]
    workload: Option<String>,
    /// parbake, torch, compile, triton, flashinfer; with commas
    #[arg(long, value_name = "NAMES")]
    backend: Option<String>,
    /// Adds the rows to FILE, one JSON object a line; with --json they are printed
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    rows: Option<String>,
    /// cuda, or cpu: small sizes on the host target, to try the harness
    #[arg(long)]
    device: Option<String>,
    /// cupti, kineto, graph or events: this mechanism or none
    #[arg(long)]
    timer: Option<String>,
    /// Modules of FlashInfer that may be compiled, with commas
    #[arg(long, value_name = "MODULES")]
    flashinfer: Option<String>,
    /// Lists the workloads
    #[arg(long)]
    list: bool,
}

impl Args {
    /// As the Python program spells them.
    fn words(&self, json: bool) -> Vec<String> {
        let rows = if json { Some("-".to_owned()) } else { self.rows.clone() };
        let given = [
            ("--op", &self.op),
            ("--workload", &self.workload),
            ("--backend", &self.backend),
            ("--json", &rows),
            ("--device", &self.device),
            ("--timer", &self.timer),
            ("--flashinfer", &self.flashinfer),
        ];
        let words = given.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
        words.chain(self.list.then(|| "--list".to_owned())).collect()
    }
}

/// Becomes the Python program; comes back only if that cannot be.
pub(super) fn run(args: &Args, config: &Config, json: bool) -> Report {
    let program = std::env::current_exe().unwrap_or_default();
    let python = python(&program);
    let mut probe = command(&python, config, &program);
    match probe.args(["-c", "import torch, parbake.bench"]).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return unable(&python).caused_by(said.trim().lines().last().unwrap_or("it says nothing"));
        }
        Err(error) => return unable(&python).caused_by(error),
    }
    let mut measure = command(&python, config, &program);
    unable(&python).caused_by(measure.args(["-m", "parbake.bench"]).args(args.words(json)).exec())
}

fn unable(python: &Path) -> Report {
    Report::new("PB-3200", Class::Environment, "ops are measured by a Python program, and it cannot be run")
        .with("expected", "a Python with the packages `parbake` and `torch`")
        .with("tried", python.display())
        .help("install the wheel `parbake` and PyTorch, and put that Python first in PATH: docs/bench.md")
}

/// The Python of the environment that this program was installed into, else the one in PATH.
fn python(program: &Path) -> PathBuf {
    let beside = program.with_file_name("python3");
    if beside.is_file() { beside } else { "python3".into() }
}

/// That Python; in a checkout with the package of the checkout, and the library that was built with this program.
fn command(python: &Path, config: &Config, program: &Path) -> Command {
    let mut command = Command::new(python);
    let package = config.kernels.as_deref().and_then(Path::parent).map(|root| root.join("wheels/python"));
    let library = program.with_file_name("libparbake_ffi.so");
    if let Some(package) = package.filter(|p| p.is_dir() && library.is_file()) {
        let before = std::env::var_os("PYTHONPATH").unwrap_or_default();
        let all = std::iter::once(package).chain(std::env::split_paths(&before).filter(|p| !p.as_os_str().is_empty()));
        if let Ok(all) = std::env::join_paths(all) {
            command.env("PYTHONPATH", all);
        }
        if std::env::var_os("PARBAKE_LIBRARY").is_none() {
            command.env("PARBAKE_LIBRARY", library);
        }
    }
    command
}
