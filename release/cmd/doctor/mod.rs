//! `parbake doctor`: what this machine offers, what is wrong with it, and how to mend it.

mod bundles;
mod compilers;
mod machine;
mod workspace;

use crate::output::{Failure, Output};
use crate::text::{self, Table};
use parbake::Library;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Target, VERSION};
use serde::Serialize;
use std::path::PathBuf;

/// Checks driver, devices, compilers, bundles, workspace, store and settings; what is not right comes with its fix.
///
/// A note is about something that is optional, a warning about something that will cost time or work, a problem about
/// something that is there or was asked for and does not work. Ends with status 1 if there is a problem.
///
///   parbake doctor --deep
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Reads everything: hashes each entry of the store, each bundle and each installed compiler
    #[arg(long)]
    deep: bool,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Ok,
    Note,
    Warning,
    Problem,
}

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Section {
    Driver,
    Device,
    Toolchain,
    HostCompiler,
    Kernels,
    Bundle,
    Workspace,
    Store,
    Setting,
    Summary,
}

impl Section {
    fn words(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Device => "device",
            Self::Toolchain => "toolchain",
            Self::HostCompiler => "host compiler",
            Self::Kernels => "kernels",
            Self::Bundle => "bundle",
            Self::Workspace => "workspace",
            Self::Store => "store",
            Self::Setting => "setting",
            Self::Summary => "summary",
        }
    }
}

#[derive(Debug, Serialize)]
struct Finding {
    section: Section,
    severity: Severity,
    what: String,
    /// Further lines, such as the places that were searched.
    details: Vec<String>,
    /// A command or a setting; there is one for whatever is not right.
    fix: Option<String>,
    /// The same for programs.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    facts: serde_json::Value,
}

impl Finding {
    fn ok(section: Section, what: impl Into<String>) -> Self {
        let facts = serde_json::Value::Null;
        Self { section, severity: Severity::Ok, what: what.into(), details: Vec::new(), fix: None, facts }
    }

    /// Something that is not right, and what mends it.
    fn not_ok(section: Section, severity: Severity, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity, fix: Some(fix.into()), ..Self::ok(section, what) }
    }

    /// What a report says; its help is the fix, if it has one.
    fn reported(section: Section, severity: Severity, report: &Report, fix: &str) -> Self {
        let details = report.details.iter().map(|(label, text)| format!("{label}: {text}"));
        let causes = report.causes.iter().map(|cause| format!("caused by: {cause}"));
        let fix = if report.help.is_empty() { fix.to_owned() } else { report.help.join("; ") };
        let what = format!("{} ({})", report.what, report.code);
        Self { details: details.chain(causes).collect(), ..Self::not_ok(section, severity, what, fix) }
    }

    fn facts(self, facts: serde_json::Value) -> Self {
        Self { facts, ..self }
    }

    fn is_ok(&self) -> bool {
        self.severity == Severity::Ok
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
    problems: usize,
    warnings: usize,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let diagnosis = diagnose(&config, args.deep);
    out.show(&diagnosis, || describe(&diagnosis));
    if diagnosis.problems == 0 {
        return Ok(());
    }
    let what = format!("{} found", text::count(diagnosis.problems, "problem"));
    let report = Report::new("PB-3130", Class::Failed, what).help("mend what is marked PROBLEM");
    Err(Failure::shown(vec![report]))
}

fn diagnose(config: &Config, deep: bool) -> Diagnosis {
    let mut findings = machine::driver();
    let device = findings.iter().any(|f| f.section == Section::Device && f.is_ok());
    let compilers = compilers::look(config, deep);
    let kernels = kernels(config);
    let (bundles, mut held) = bundles::look(config, deep);
    let (store, warm) = workspace::store(config, deep);
    held.extend(warm);
    let sources = kernels.is_ok();
    let gpu_image = held.iter().any(|t| *t != Target::Host);
    // One bundle that cannot be used refuses every call; a bake looks into none.
    let calls = kernels.severity < Severity::Problem && bundles.iter().all(|b| b.severity < Severity::Problem);
    let jit = config.jit && sources;
    let works = Works {
        build: sources && compilers.nvrtc && compilers.packer,
        gpu: calls && device && (gpu_image || jit && compilers.nvrtc),
        host: calls && (held.contains(&Target::Host) || jit && compilers.host),
    };
    findings.extend(compilers.findings);
    findings.push(kernels);
    findings.extend(bundles);
    findings.extend(workspace::look(config));
    findings.extend(store);
    findings.extend(machine::settings(config));
    if !(works.build || works.gpu || works.host) {
        let what = "kernels can neither be built nor run here";
        let fix = "mend what is listed above; `parbake toolchain install 12.9` brings a compiler";
        findings.push(Finding::not_ok(Section::Summary, Severity::Problem, what, fix));
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    Diagnosis { version: VERSION, findings, works, problems, warnings }
}

/// A library with these bundles and the embedded one only.
fn open(config: &Config, bundles: Vec<PathBuf>) -> Result<Library, Box<parbake::Error>> {
    Library::open(Config { bundles, ..config.clone().without_bundles() }).map_err(Box::new)
}

fn kernels(config: &Config) -> Finding {
    let section = Section::Kernels;
    let fix = "set PARBAKE_KERNELS to the folder `kernels` of a checkout, or unset it";
    let library = match open(config, Vec::new()) {
        Ok(library) => library,
        Err(error) => return Finding::reported(section, Severity::Problem, &error.report(), fix),
    };
    let place = config.kernels.as_ref().map_or("inside the library".to_owned(), |k| k.display().to_string());
    let ops: Vec<String> = library.ops().map(|(_, op)| op.path()).collect();
    if ops.is_empty() {
        return Finding::not_ok(section, Severity::Problem, format!("{place}: no op there"), fix);
    }
    // Without sources bundles are still served.
    if let Some(error) = library.ops().find_map(|(id, _)| library.sources(id).err()) {
        return Finding::reported(section, Severity::Warning, &error.report(), fix);
    }
    let other: Vec<&str> =
        library.ops().filter(|(id, _)| library.binding(*id).is_err()).map(|(_, op)| op.name.as_str()).collect();
    if !other.is_empty() {
        let what =
            format!("{place}: {} cannot be called, only baked: this program was built with others", other.join(", "));
        let fix = "build it again: cargo run -p parbake-codegen --features bindings -- --write, then cargo build";
        return Finding::not_ok(section, Severity::Warning, what, fix);
    }
    Finding::ok(section, format!("{place}, {}", text::count(ops.len(), "op"))).facts(serde_json::json!({ "ops": ops }))
}

fn describe(diagnosis: &Diagnosis) -> String {
    let mut table = Table::new(&["", "parbake", VERSION]);
    for finding in &diagnosis.findings {
        let severity = match finding.severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Problem => "PROBLEM",
        };
        let mut what = finding.what.clone();
        for detail in &finding.details {
            what += &format!("\n· {}", detail.replace('\n', "\n  "));
        }
        if let Some(fix) = &finding.fix {
            what += &format!("\nfix: {fix}");
        }
        table.row([severity, finding.section.words(), &what]);
    }
    let Works { build, gpu, host } = diagnosis.works;
    let word = |works| if works { "yes" } else { "no" };
    format!(
        "{}\nbuild bundles: {}   run on a GPU: {}   run on the host target: {}\n{}, {}\n",
        table.text(),
        word(build),
        word(gpu),
        word(host),
        text::count(diagnosis.problems, "problem"),
        text::count(diagnosis.warnings, "warning"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_right_has_a_fix() {
        let report = Report::new("PB-1301", Class::Environment, "what").with("got", "this").caused_by("that");
        let finding = Finding::reported(Section::Bundle, Severity::Problem, &report, "the fix");
        assert_eq!((finding.fix.as_deref(), finding.details.len()), (Some("the fix"), 2));
        let finding = Finding::reported(Section::Bundle, Severity::Problem, &report.help("do it"), "the fix");
        assert_eq!((finding.fix.as_deref(), finding.what.as_str()), (Some("do it"), "what (PB-1301)"));
    }
}
