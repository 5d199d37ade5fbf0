//! Toolchains: what is installed, and what each kind of target would be compiled with.

use super::{Finding, Section, Severity, open};
use crate::text;
use parbake::{Goal, driver};
use parbake_codegen::toolchain::{
    NotFound, Search, Toolchain, components, find_nvcc, find_nvfatbin, find_nvrtc, install,
};
use parbake_model::settings::Config;
use parbake_model::target::known_targets;
use parbake_model::{Suffix, Target, Toolkit, trust};
use serde_json::json;

pub(super) struct Compilers {
    pub(super) findings: Vec<Finding>,
    /// A compiler for GPUs is there.
    pub(super) nvrtc: bool,
    /// What packs its images is there.
    pub(super) packer: bool,
    /// A compiler for the host target is there.
    pub(super) host: bool,
}

pub(super) fn look(config: &Config, deep: bool) -> Compilers {
    let mut findings = installed(config, deep);
    let (nvrtc, toolkit) = nvrtc(config);
    let packer = nvfatbin(config, toolkit);
    let host = host(config);
    let compilers = |findings| Compilers { nvrtc: nvrtc.is_ok(), packer: packer.is_ok(), host: host.is_ok(), findings };
    let compilers = compilers(Vec::new());
    findings.extend([nvrtc, packer]);
    findings.extend(nvcc(config));
    findings.push(host);
    Compilers { findings, ..compilers }
}

/// The folder of installed compilers, and each of them.
fn installed(config: &Config, deep: bool) -> Vec<Finding> {
    let section = Section::Toolchain;
    let folder = &config.toolchains;
    let mut found = Vec::new();
    // What is found there is loaded into this process or run.
    if let Err(untrusted) = trust::check(folder, false) {
        let fix = format!("chmod go-w {}, or set PARBAKE_TOOLCHAINS to a folder of yours", folder.display());
        found.push(Finding::not_ok(section, Severity::Problem, untrusted.to_string(), fix));
    }
    let installed = install::list(folder);
    if installed.is_empty() {
        let what = format!("none installed in {}", folder.display());
        found.push(Finding::not_ok(section, Severity::Note, what, "parbake toolchain install 12.9"));
    }
    for i in installed {
        let name = format!("{}-{}", i.name, i.version);
        if let Err(untrusted) = trust::check(&i.path, false) {
            let fix = format!("rm -r {}, and parbake toolchain install", i.path.display());
            found.push(Finding::not_ok(section, Severity::Problem, untrusted.to_string(), fix));
            continue;
        }
        let component = components::ALL.iter().find(|c| c.name == i.name && c.version == i.version);
        let known = component.map(|c| install::verify(c, &i.path)).filter(|_| deep);
        if let Some(Err(error)) = known {
            let report = error.report();
            found.push(Finding::reported(section, Severity::Problem, &report, "parbake toolchain install"));
            continue;
        }
        let mut facts = json!({ "installed": name, "path": i.path, "bytes": i.bytes });
        let mut what = format!("{name} in {}, {}", i.path.display(), text::bytes(i.bytes));
        let search = Search { explicit: None, driver: None, want: i.version.parse().ok(), ..search(config) };
        if let (true, Ok(nvrtc)) = (i.name == "cuda", find_nvrtc(&search)) {
            let targets = targets(&*nvrtc);
            what += &format!("; {}, for {}", nvrtc.id(), archs(&targets));
            facts["id"] = nvrtc.id().into();
            facts["targets"] = json!(targets);
        }
        found.push(Finding::ok(section, what).facts(facts));
    }
    found
}

/// Every target that a compiler knows.
fn targets(toolchain: &dyn Toolchain) -> Vec<Target> {
    let all = known_targets();
    let known = all.split(", ").filter_map(|name| name.parse::<Target>().ok());
    known.filter(|target| toolchain.supports(*target).is_ok()).collect()
}

/// Targets without suffix, which stand for those with one.
fn archs(targets: &[Target]) -> String {
    let plain = targets.iter().filter(|t| matches!(t, Target::Sm(_, Suffix::Baseline)));
    format!("sm_{}", plain.map(|t| t.digits()).collect::<Vec<_>>().join(", "))
}

fn search(config: &Config) -> Search {
    let device = driver::ready().and_then(|r| r.devices.first().map(|d| (r.version, d.arch)));
    let hopper = || "sm_90a".parse().expect("bug: sm_90a is a target");
    Search {
        explicit: config.nvrtc.clone(),
        toolchains: config.toolchains.clone(),
        want: None,
        driver: device.map(|(version, _)| version),
        target: device.map_or_else(hopper, |(_, arch)| Target::Sm(arch, Suffix::Baseline)),
    }
}

fn missing(severity: Severity, error: &NotFound) -> Finding {
    Finding::reported(Section::Toolchain, severity, &error.report(), "parbake toolchain install 12.9")
}

fn nvrtc(config: &Config) -> (Finding, Option<Toolkit>) {
    let search = search(config);
    match find_nvrtc(&search) {
        Ok(found) => {
            let targets = targets(&*found);
            let what = format!("in use for {}: {}, {}", search.target, found.id(), found.path().display());
            let facts = json!({
                "in_use_for": search.target, "id": found.id(), "path": found.path(), "targets": targets,
            });
            (Finding::ok(Section::Toolchain, what).facts(facts), found.toolkit())
        }
        // A path that was asked for and does not serve is worse than none.
        Err(error) if config.nvrtc.is_some() => {
            let found = missing(Severity::Problem, &error);
            (Finding { fix: Some("unset PARBAKE_NVRTC, or let it name a libnvrtc.so".to_owned()), ..found }, None)
        }
        Err(error) => (missing(Severity::Warning, &error), None),
    }
}

/// The packer of the same toolkit, as a bake takes it.
fn nvfatbin(config: &Config, toolkit: Option<Toolkit>) -> Finding {
    let search = Search { explicit: None, driver: None, want: toolkit, ..search(config) };
    match find_nvfatbin(&search) {
        Ok(found) => {
            let what = format!("in use for bundles: {}, {}", found.id(), found.describe());
            Finding::ok(Section::Toolchain, what).facts(json!({ "in_use_for": "bundles", "id": found.id() }))
        }
        Err(error) => missing(Severity::Warning, &error),
    }
}

/// nvcc is a comparator: nobody needs it, so that it is missing is not worth a word.
fn nvcc(config: &Config) -> Option<Finding> {
    let found = find_nvcc(&Search { explicit: None, driver: None, ..search(config) }).ok()?;
    let what = format!("to compare with: {}, {}", found.id(), found.path().display());
    let facts = json!({ "in_use_for": "comparison", "id": found.id(), "path": found.path() });
    Some(Finding::ok(Section::Toolchain, what).facts(facts))
}

/// The compiler of the host target. A library without bundles is enough to ask.
fn host(config: &Config) -> Finding {
    let section = Section::HostCompiler;
    let Ok(library) = open(config, Vec::new()) else {
        let fix = "mend the kernels first: its runtime is among them";
        return Finding::not_ok(section, Severity::Note, "not looked for: the kernels cannot be read", fix);
    };
    match library.toolchain_for(Goal::Host) {
        Ok(t) => {
            let facts = json!({ "id": t.id(), "path": t.describe() });
            Finding::ok(section, format!("{}, {}", t.id(), t.describe())).facts(facts)
        }
        Err(report) => Finding::reported(section, Severity::Warning, &report, "install g++ or clang++"),
    }
}
