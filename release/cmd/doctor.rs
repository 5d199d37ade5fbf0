//! `parbake doctor`: what this machine offers, what is missing, and how to get it.

use super::inspect;
use crate::output::{Failure, Output};
use crate::text::{self, Table};
use parbake::driver::{self, Driver};
use parbake::{Goal, Library};
use parbake_codegen::toolchain::{NotFound, Search, Toolchain, find_nvfatbin, find_nvrtc};
use parbake_model::report::{Class, Report};
use parbake_model::settings::{Config, SETTINGS};
use parbake_model::{Target, Toolkit, VERSION};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Checks driver, devices, compilers, bundles, workspace and settings, each with the command that mends it.
///
/// Ends with status 3 if kernels can neither be built nor run here.
///
///   parbake doctor --json
#[derive(clap::Args)]
pub(crate) struct Args {}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    /// Not there; other things work without it.
    Warn,
    /// There, or asked for, and it cannot be used.
    Bad,
}

#[derive(Serialize)]
struct Finding {
    area: &'static str,
    level: Level,
    what: String,
    /// Further lines, such as the places that were searched.
    details: Vec<String>,
    help: Option<String>,
}

impl Finding {
    fn new(area: &'static str, level: Level, what: impl Into<String>) -> Self {
        Self { area, level, what: what.into(), details: Vec::new(), help: None }
    }
    fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
    fn ok(&self) -> bool {
        self.level == Level::Ok
    }
    /// What a report says, at a level.
    fn reported(area: &'static str, level: Level, report: &Report) -> Self {
        let details = report.details.iter().map(|(label, text)| format!("{label}: {text}"));
        let causes = report.causes.iter().map(|cause| format!("caused by: {cause}"));
        let help = (!report.help.is_empty()).then(|| report.help.join("; "));
        Self { area, level, what: report.what.clone(), details: details.chain(causes).collect(), help }
    }
}

/// Whether the things that people come for work here.
#[derive(Clone, Copy, Serialize)]
struct Works {
    /// Bundles for GPUs can be built.
    build: bool,
    /// Kernels run on a GPU.
    gpu: bool,
    /// Kernels run on the CPU, through the host target.
    host: bool,
}

#[derive(Serialize)]
struct Diagnosis {
    version: &'static str,
    findings: Vec<Finding>,
    works: Works,
}

pub(crate) fn run(_: Args, config: Config, out: Output) -> Result<(), Failure> {
    let diagnosis = diagnose(&config);
    out.show(&diagnosis, || describe(&diagnosis));
    let Works { build, gpu, host } = diagnosis.works;
    if build || gpu || host {
        return Ok(());
    }
    let report = Report::new("PB-3130", Class::Environment, "kernels can neither be built nor run here");
    Err(Failure::shown(vec![report.help("mend what is marked BAD or warn")]))
}

fn diagnose(config: &Config) -> Diagnosis {
    let mut findings = Vec::new();
    let drivers = driver_findings();
    let device = drivers.iter().any(|f| f.area == "device");
    findings.extend(drivers);
    let host = host_compiler(config);
    let (nvrtc, toolkit) = nvrtc(config);
    let nvfatbin = nvfatbin(config, toolkit);
    let kernels = kernels(config);
    let (bundles, held) = bundles(config);
    let defined = kernels.level != Level::Bad;
    let gpu_bundle = held.iter().any(|t| *t != Target::Host);
    // One bundle that cannot be used refuses every call; a bake looks into none.
    let calls = defined && bundles.iter().all(|b| b.level != Level::Bad);
    let jit = config.jit && kernels.ok();
    let works = Works {
        build: kernels.ok() && nvrtc.ok() && nvfatbin.ok(),
        gpu: calls && device && (gpu_bundle || jit && nvrtc.ok()),
        host: calls && (held.contains(&Target::Host) || jit && host.ok()),
    };
    findings.extend([host, nvrtc, nvfatbin, kernels]);
    findings.extend(bundles);
    findings.push(workspace(&config.workspace));
    findings.push(folder("toolchains", &config.toolchains, "parbake toolchain install 12.9"));
    findings.extend(settings(config));
    Diagnosis { version: VERSION, findings, works }
}

fn driver_findings() -> Vec<Finding> {
    match driver::driver() {
        Driver::Absent { searched } => {
            // The others are names of another system.
            let names: BTreeSet<&String> = searched.iter().filter(|n| !n.starts_with("libcuda64")).collect();
            let found = Finding::new("driver", Level::Warn, format!("none; tried {}", text::list(names)));
            vec![found.help("install the NVIDIA driver to run on a GPU; `--target host` runs without one")]
        }
        Driver::Unusable { why } => {
            vec![Finding::new("driver", Level::Bad, why.clone()).help("see what nvidia-smi says")]
        }
        Driver::Ready(ready) => {
            let mut found = vec![Finding::new("driver", Level::Ok, format!("supports CUDA {}", ready.version))];
            found.extend(ready.devices.iter().map(|d| {
                let what = format!("{}: {}, sm_{}, {}", d.ordinal, d.name, d.arch, text::bytes(d.memory));
                Finding::new("device", Level::Ok, what)
            }));
            if ready.devices.is_empty() {
                let none = Finding::new("devices", Level::Warn, "the driver shows no GPU");
                found.push(none.help("see CUDA_VISIBLE_DEVICES, and whether the container was given a GPU"));
            }
            found
        }
    }
}

/// The compiler of the host target. A library without bundles is enough to ask.
fn host_compiler(config: &Config) -> Finding {
    let library = match open(config, Vec::new()) {
        Ok(library) => library,
        Err(_) => return Finding::new("host compiler", Level::Warn, "not looked for: the kernels cannot be read"),
    };
    match library.toolchain_for(Goal::Host) {
        Ok(t) => Finding::new("host compiler", Level::Ok, format!("{}, {}", t.id(), t.describe())),
        Err(report) => Finding::reported("host compiler", Level::Warn, &report),
    }
}

fn search(config: &Config) -> Search {
    Search {
        explicit: config.nvrtc.clone(),
        toolchains: config.toolchains.clone(),
        want: None,
        driver: driver::ready().filter(|r| !r.devices.is_empty()).map(|r| r.version),
        target: driver::ready().and_then(|r| r.devices.first()).map_or_else(
            || "sm_90a".parse().expect("bug: sm_90a is a target"),
            |device| Target::Sm(device.arch, parbake_model::Suffix::Baseline),
        ),
    }
}

fn missing(area: &'static str, level: Level, error: &NotFound) -> Finding {
    Finding::reported(area, level, &error.report())
}

fn nvrtc(config: &Config) -> (Finding, Option<Toolkit>) {
    // A path that was asked for and does not serve is worse than none.
    let level = if config.nvrtc.is_some() { Level::Bad } else { Level::Warn };
    let search = search(config);
    match find_nvrtc(&search) {
        Ok(found) => {
            let what = format!("{}, for {}", found.describe(), search.target);
            (Finding::new("NVRTC", Level::Ok, what), found.toolkit())
        }
        Err(error) if config.nvrtc.is_some() => {
            (missing("NVRTC", level, &error).help("unset PARBAKE_NVRTC, or let it name a libnvrtc.so"), None)
        }
        Err(error) => (missing("NVRTC", level, &error), None),
    }
}

/// The packer of the same toolkit, as a bake takes it.
fn nvfatbin(config: &Config, toolkit: Option<Toolkit>) -> Finding {
    let search = Search { explicit: None, driver: None, want: toolkit, ..search(config) };
    match find_nvfatbin(&search) {
        Ok(found) => Finding::new("nvFatbin", Level::Ok, found.describe()),
        Err(error) => missing("nvFatbin", Level::Warn, &error),
    }
}

fn kernels(config: &Config) -> Finding {
    let help = "set PARBAKE_KERNELS to the folder `kernels` of a checkout";
    let library = match open(config, Vec::new()) {
        Ok(library) => library,
        Err(error) => return Finding::reported("kernels", Level::Bad, &error.report()).help(help),
    };
    let place = config.kernels.as_ref().map_or("inside the library".to_owned(), |k| k.display().to_string());
    let Some((first, _)) = library.ops().next() else {
        return Finding::new("kernels", Level::Bad, format!("{place}: no op there")).help(help);
    };
    match library.sources(first) {
        Ok(_) => Finding::new("kernels", Level::Ok, format!("{place}, {}", text::count(library.ops().count(), "op"))),
        // Without sources bundles are still served.
        Err(error) => Finding::reported("kernels", Level::Warn, &error.report()),
    }
}

/// A library with these bundles only.
fn open(config: &Config, bundles: Vec<PathBuf>) -> Result<Library, Box<parbake::Error>> {
    Library::open(Config { bundles, ..config.clone() }).map_err(Box::new)
}

/// Every bundle, and the targets that the usable ones hold images for.
fn bundles(config: &Config) -> (Vec<Finding>, BTreeSet<Target>) {
    let (mut found, mut held) = (Vec::new(), BTreeSet::new());
    for path in &config.bundles {
        let shown = path.display();
        let refused = match open(config, vec![path.clone()]) {
            Err(error) if matches!(*error, parbake::Error::Bundle { .. } | parbake::Error::BundleVersion { .. }) => {
                Some(error.report())
            }
            // Other errors are findings of their own.
            _ => None,
        };
        if let Some(report) = refused {
            let why = report.causes.first().unwrap_or(&report.what);
            let bad = Finding::reported("bundle", Level::Bad, &report);
            found.push(Finding { what: format!("{shown}: {why}"), ..bad }.help(format!("parbake verify {shown}")));
            continue;
        }
        let targets: BTreeSet<Target> =
            inspect::open(path).map(|b| b.entries().iter().map(|e| e.target).collect()).unwrap_or_default();
        let what = format!("{shown}: fits this library, for {}", text::list(&targets));
        found.push(Finding::new("bundle", Level::Ok, what));
        held.extend(targets);
    }
    if let Ok(library) = open(config, Vec::new()) {
        for name in library.bundles() {
            found.push(Finding::new("bundle", Level::Ok, name));
            // Builds embed images for GPUs only.
            held.extend("sm_90a".parse::<Target>());
        }
    }
    if found.is_empty() {
        // Not a gap where kernels may be compiled.
        let level = if config.jit { Level::Ok } else { Level::Warn };
        let none = Finding::new("bundles", level, "none: PARBAKE_BUNDLES is not set, and none is embedded");
        found.push(if config.jit { none } else { none.help("parbake build --arch … -o kernels.pbk") });
    }
    (found, held)
}

/// Whether a folder, or what it would be made in, can be written. Leaves nothing behind.
fn writable(path: &Path) -> std::io::Result<()> {
    let there = path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    tempfile::tempfile_in(there).map(|_| ())
}

/// Free bytes of the file system that a path is on, as `df` tells.
fn free(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|p| p.exists())?;
    let output = Command::new("df").arg("-Pk").arg(there).env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let kib: u64 = text.lines().nth(1)?.split_whitespace().rev().nth(2)?.parse().ok()?;
    Some(kib * 1024)
}

/// Below this, compiling may fail half-way.
const ENOUGH: u64 = 256 << 20;

fn workspace(path: &Path) -> Finding {
    let shown = path.display();
    if let Err(error) = writable(path) {
        let what = format!("{shown}: cannot be written ({error}); compiled kernels stay in memory");
        return Finding::new("workspace", Level::Warn, what).help("set PARBAKE_WORKSPACE to a folder of yours");
    }
    let free = free(path);
    let space = free.map_or(String::new(), |bytes| format!(", {} free", text::bytes(bytes)));
    if free.is_some_and(|bytes| bytes < ENOUGH) {
        let what = format!("{shown}: little space{space}");
        return Finding::new("workspace", Level::Warn, what).help("make room, or set PARBAKE_WORKSPACE elsewhere");
    }
    if !path.exists() {
        return Finding::new("workspace", Level::Ok, format!("{shown}: made when something must be written{space}"));
    }
    if parbake_model::trust::check(path, false).is_err() {
        let what = format!("{shown}: others can write it, or it is not yours{space}");
        return Finding::new("workspace", Level::Warn, what).help(format!("chmod go-w {shown}"));
    }
    Finding::new("workspace", Level::Ok, format!("{shown}: yours, writable{space}"))
}

fn folder(area: &'static str, path: &Path, help: &str) -> Finding {
    let installed = parbake_codegen::toolchain::install::list(path);
    let names: Vec<String> = installed.iter().map(|i| format!("{}-{}", i.name, i.version)).collect();
    if names.is_empty() {
        return Finding::new(area, Level::Warn, format!("{}: none installed", path.display())).help(help);
    }
    Finding::new(area, Level::Ok, format!("{}: {}", path.display(), names.join(", ")))
}

fn settings(config: &Config) -> Vec<Finding> {
    let set = SETTINGS.iter().filter_map(|s| config.set.get(s.name).map(|value| format!("{}={value}", s.name)));
    let mut found: Vec<Finding> = set.map(|what| Finding::new("setting", Level::Ok, what)).collect();
    found.extend(
        config
            .warnings
            .iter()
            .map(|warning| Finding::new("setting", Level::Warn, warning).help("`parbake config` lists the settings")),
    );
    found
}

fn describe(diagnosis: &Diagnosis) -> String {
    let mut table = Table::new(&["", "parbake", VERSION]);
    for finding in &diagnosis.findings {
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Bad => "BAD",
        };
        let mut what = finding.what.clone();
        for detail in &finding.details {
            what += &format!("\n· {}", detail.replace('\n', "\n  "));
        }
        if let Some(help) = &finding.help {
            what += &format!("\nhelp: {help}");
        }
        table.row([level, finding.area, &what]);
    }
    let Works { build, gpu, host } = diagnosis.works;
    let word = |works| if works { "yes" } else { "no" };
    let summary = format!(
        "build bundles: {}   run on a GPU: {}   run on the host target: {}",
        word(build),
        word(gpu),
        word(host)
    );
    format!("{}\n{summary}\n", table.text())
}
