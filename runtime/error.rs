//! What can go wrong in the library. Each error has a stable code and says what to do.

use crate::check::BadArguments;
use crate::decision::Decision;
use crate::driver::DriverError;
use crate::store::StoreError;
use parbake_model::bundle::BundleError;
use parbake_model::report::{Class, Report};
use parbake_model::settings::BadSetting;
use parbake_model::source::SourceError;
use parbake_model::target::BadTarget;
use std::path::PathBuf;

/// An error of the library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting holds what it cannot hold.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// A text names no target.
    #[error(transparent)]
    Target(#[from] BadTarget),
    /// There is no such op.
    #[error("there is no op `{given}`")]
    UnknownOp {
        /// What was given.
        given: String,
        /// An op of a similar name.
        nearest: Option<String>,
        /// All ops.
        known: Vec<String>,
    },
    /// The launcher in this program belongs to other sources of the op than the kernel folder holds.
    #[error("op `{op}`: the launcher in this program was built from other sources than {folder} holds", folder = .folder.display())]
    OtherLauncher {
        /// The op.
        op: String,
        /// The kernel folder.
        folder: PathBuf,
    },
    /// An op has no such axis, tactic, shape symbol or scalar, or not that value of it.
    #[error("op `{op}`: {what}")]
    UnknownValue {
        /// The op.
        op: String,
        /// What is wrong.
        what: String,
        /// What there is.
        expected: String,
        /// What was given.
        got: String,
    },
    /// Arguments do not fit the op's signature.
    #[error("{}", .0.report().what)]
    Arguments(BadArguments),
    /// The combination does not exist.
    #[error("{spec} does not exist for {target}: {reason}")]
    Unsupported {
        /// The spec.
        spec: String,
        /// The target.
        target: String,
        /// Why.
        reason: String,
    },
    /// No artifact covers the spec, and none may be made.
    #[error("{} is not covered for {}", .0.spec, .0.runs_on)]
    NotCovered(Box<Decision>),
    /// The spec could not be compiled.
    #[error("{uri} could not be compiled for {target}")]
    Compile {
        /// The spec's URI.
        uri: String,
        /// The target.
        target: String,
        /// The toolchain's own report.
        report: Box<Report>,
    },
    /// There is no GPU to run on.
    #[error("there is no GPU to run {target} code on")]
    NoDevice {
        /// What should have run.
        target: String,
        /// What was found.
        why: String,
    },
    /// A driver call failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// An image that was judged fit could not be loaded.
    #[error("the driver did not load {uri} ({target}): {why}")]
    Load {
        /// The spec's URI.
        uri: String,
        /// The image's target.
        target: String,
        /// What happened.
        why: String,
    },
    /// A kernel on the host target broke a rule.
    #[error("{uri} failed on the host target: {why}")]
    Host {
        /// The spec's URI.
        uri: String,
        /// What the shim said.
        why: String,
    },
    /// A bundle cannot be used.
    #[error("bundle {path}")]
    Bundle {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: BundleError,
    },
    /// A bundle belongs to another library.
    #[error("bundle {path} does not fit this library")]
    BundleVersion {
        /// The file.
        path: PathBuf,
        /// Library version and ABI it was made for.
        bundle: String,
        /// Ours.
        library: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Kernel sources cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Op definitions cannot be read.
    #[error("{message}")]
    Definitions {
        /// The code of the cause.
        code: &'static str,
        /// All complaints.
        message: String,
    },
    /// There are no kernel sources to compile from.
    #[error("there are no kernel sources to compile {uri} from")]
    NoSources {
        /// The spec's URI.
        uri: String,
    },
}

impl Error {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let new = |code, class| Report::new(code, class, self.to_string());
        match self {
            Self::Setting(e) => Report::new(e.code(), Class::Usage, format!("setting {} cannot be used", e.name))
                .with("expected", &e.expected)
                .with("got", &e.got),
            Self::Target(e) => new(e.code(), Class::Usage),
            Self::UnknownOp { nearest, known, .. } => {
                let report = new("PB-1107", Class::Usage).with("known", known.join(", "));
                match nearest {
                    Some(name) => report.help(format!("did you mean `{name}`?")),
                    None => report.help("`parbake ops` lists them"),
                }
            }
            Self::OtherLauncher { op, .. } => new("PB-1120", Class::Environment)
                .with("expected", format!("op.toml, params.h, launch.rs and reference.rs of `{op}` as this program was built with"))
                .help("build it again; in a checkout: cargo run -p parbake-codegen --features bindings -- --write, then cargo build"),
            Self::UnknownValue { expected, got, op, .. } => new("PB-1108", Class::Usage)
                .with("expected", expected)
                .with("got", got)
                .help(format!("`parbake ops {op}` shows what there is")),
            Self::Arguments(bad) => bad.report(),
            Self::Unsupported { .. } => new("PB-1109", Class::Usage).help("`parbake expand` lists what exists, and why the rest does not"),
            Self::NotCovered(decision) => not_covered(decision),
            Self::Compile { report, uri, target } => {
                let mut report = (**report).clone();
                report.details.insert(0, ("compiling".into(), format!("{uri} for {target}")));
                report
            }
            Self::NoDevice { why, .. } => new("PB-2101", Class::Environment).with("driver", why).help("`parbake doctor` says what is missing; `--target host` runs on the CPU"),
            Self::Driver(_) => new("PB-2102", Class::Environment),
            Self::Load { .. } => new("PB-2103", Class::Environment)
                .help("the image passed every check before the driver refused it: this is a bug worth reporting, with `parbake doctor --json`"),
            Self::Host { .. } => new("PB-2104", Class::Failed),
            Self::Bundle { source, .. } => {
                let class = if source.code() == "PB-1301" { Class::Environment } else { Class::Failed };
                new(source.code(), class).caused_by_chain(source)
            }
            Self::BundleVersion { bundle, library, .. } => {
                new("PB-1390", Class::Environment).with("bundle", bundle).with("library", library).help("build the bundle again with this library: parbake build …")
            }
            Self::Store(e) => {
                let report = new(e.code(), Class::Environment);
                e.help().map_or(report.clone(), |help| report.help(help))
            }
            Self::Source(e) => {
                let report = new("PB-1104", Class::Environment);
                std::error::Error::source(e).map_or(report.clone(), |s| report.caused_by_chain(s))
            }
            Self::Definitions { code, .. } => new(code, Class::Failed),
            Self::NoSources { .. } => new("PB-1110", Class::Environment).help("set PARBAKE_KERNELS to a folder of kernel sources, or use a build with the feature `embed-sources`"),
        }
    }
}

fn not_covered(decision: &Decision) -> Report {
    let last = decision.steps.iter().rfind(|s| s.place == "jit").map_or("", |s| s.outcome.as_str());
    let jit = if last.starts_with("switched off") { "JIT is off" } else { "it cannot be compiled here" };
    let what = format!("`{}` is not covered, and {jit}", decision.op);
    let mut report = Report::new("PB-2002", Class::Environment, what)
        .with("spec", &decision.spec)
        .with("uri", &decision.uri)
        .with("target", &decision.runs_on);
    for step in &decision.steps {
        let target = step.target.map(|t| format!(" {t}")).unwrap_or_default();
        report = report.with(format!("searched {}{target}", step.place), &step.outcome);
    }
    report.help(decision.remedy())
}
