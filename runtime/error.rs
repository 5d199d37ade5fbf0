//! What can go wrong in the library. Each error has a stable code and says what to do.

use crate::bundles::Unfit;
use crate::check::BadArguments;
use crate::decision::{self, Decision, Miss, Origin};
use crate::door::c::BadCall;
use crate::driver::{DriverError, NoDevice, Rejected};
use crate::group::GroupError;
use crate::signature::{BadKey, SignatureError};
use crate::store::StoreError;
use crate::tactic::TacticError;
use parbake_model::Target;
use parbake_model::bundle::BundleError;
use parbake_model::glob::Unmatched;
use parbake_model::report::{Class, Report};
use parbake_model::settings::BadSetting;
use parbake_model::snippet::BadSnippet;
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
    /// An argument of a function of the C ABI cannot be used.
    #[error("{}", .0.report().what)]
    BadCall(BadCall),
    /// A snippet that an op cannot take.
    #[error(transparent)]
    Snippet(BadSnippet),
    /// A file of tactics, or a tactic that is blocked or forced.
    #[error(transparent)]
    Tactic(#[from] TacticError),
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
    /// Specs that no artifact covers, and that may not or cannot be compiled.
    #[error("{} of {wanted} specs are not covered", .gaps.len())]
    Gaps {
        /// What was looked for in each case.
        gaps: Vec<Decision>,
        /// How many were asked for.
        wanted: usize,
    },
    /// A lock names specs that this library does not have.
    #[error("the lock names {} specs that this library does not have", .unknown.len())]
    Lock {
        /// Each, and what is wrong with it.
        unknown: Vec<(String, String)>,
    },
    /// Several things failed.
    #[error("{} specs could not be prepared", .0.len())]
    Several(Vec<Error>),
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
    /// It was compiled for later, but the store does not keep it.
    #[error("{uri} was compiled for {target}, but nothing keeps it for later")]
    NotKept {
        /// The spec's URI.
        uri: String,
        /// What it was compiled for.
        target: String,
        /// The store.
        folder: PathBuf,
    },
    /// There is no GPU to run on.
    #[error(transparent)]
    NoDevice(#[from] NoDevice),
    /// A driver call failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The ranks of a group cannot share memory.
    #[error(transparent)]
    Group(GroupError),
    /// An image is not what its label says; it was not handed to the driver.
    #[error("the image of {uri} from the {origin} is not what it is said to be: {why}")]
    Image {
        /// The spec's URI.
        uri: String,
        /// What it was said to be for.
        target: Target,
        /// Where it came from.
        origin: Origin,
        /// What it is.
        why: String,
    },
    /// The driver refused an image that passed every check.
    #[error(transparent)]
    Rejected(Box<Rejected>),
    /// A shared object of the host target could not be opened.
    #[error("the system did not open {uri} ({target}): {why}")]
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
    /// A bundle that none of the configured keys vouches for.
    #[error("bundle {path}: {source}", path = .path.display())]
    Signature {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: SignatureError,
    },
    /// A public key that cannot be used.
    #[error(transparent)]
    PublicKey(BadKey),
    /// A bundle belongs to another library.
    #[error("bundle {path} does not fit this library")]
    BundleVersion {
        /// The file.
        path: PathBuf,
        /// Library version and ABI it was made for.
        bundle: String,
        /// Ours.
        library: String,
        /// The bypass that is set, which names another pair.
        bypass: Option<String>,
        /// The pair that would let it pass; none if nothing would.
        pair: Option<String>,
    },
    /// Installed bundles that are damaged or belong to another library.
    #[error("{}", installed(.0))]
    Installed(Vec<Unfit>),
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
        /// What the system says, if it is the folder that cannot be read.
        cause: Option<String>,
    },
    /// There are no kernel sources to compile from.
    #[error("there are no kernel sources to compile {uri} from")]
    NoSources {
        /// The spec's URI.
        uri: String,
    },
}

impl Error {
    /// What and why on one line, for logs and decisions.
    pub(crate) fn one_line(&self) -> String {
        match self {
            Self::Signature { source, .. } => source.words(),
            Self::Bundle { source, .. } => {
                let first = source.to_string();
                std::iter::successors(std::error::Error::source(source), |e| e.source())
                    .fold(first, |text, cause| format!("{text}: {cause}"))
            }
            Self::BundleVersion { bundle, library, .. } => format!("{bundle}; the library is {library}"),
            other => other.to_string(),
        }
    }

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
            Self::Snippet(bad) => bad.report(),
            Self::BadCall(bad) => bad.report(),
            Self::Tactic(e) => e.report(),
            Self::Unsupported { .. } => new("PB-1109", Class::Usage).help("`parbake expand` lists what exists, and why the rest does not"),
            Self::NotCovered(decision) => not_covered(decision),
            Self::Gaps { gaps, .. } => uncovered(self.to_string(), gaps),
            Self::Lock { unknown } => unknown
                .iter()
                .fold(new("PB-2006", Class::Failed), |report, (spec, why)| report.with(spec, why))
                .help("write the lock again: parbake lock …"),
            Self::Several(errors) => several(self.to_string(), errors),
            Self::Compile { report, uri, target } => {
                let mut report = (**report).clone();
                report.details.insert(0, ("compiling".into(), format!("{uri} for {target}")));
                report
            }
            Self::NotKept { folder, .. } => new("PB-2007", Class::Environment)
                .with("store", folder.display())
                .help("see that PARBAKE_CACHE is on and the store can be written: parbake doctor"),
            Self::NoDevice(e) => e.report(),
            Self::Driver(e) => e.report(),
            Self::Group(e) => e.report(),
            Self::Image { target, origin, .. } => new("PB-2119", Class::Failed)
                .with("expected", format!("one complete image for {target} with that kernel"))
                .with("from", origin)
                .help("nothing of it was run; make the bundle again, or remove the entry that `parbake why` names from the store"),
            Self::Rejected(e) => e.report(),
            Self::Load { .. } => new("PB-2124", Class::Environment).help("see whether the system allows code in memory (memfd), and whether a C++ compiler of another machine made it"),
            Self::Host { .. } => new("PB-2104", Class::Failed),
            Self::Bundle { source, .. } => {
                let class = if source.code() == "PB-1301" { Class::Environment } else { Class::Failed };
                let report = new(source.code(), class).caused_by_chain(source);
                if class == Class::Environment {
                    report.help("name a bundle that can be read, in `--bundle` or PARBAKE_BUNDLES")
                } else {
                    report
                }
            }
            Self::Signature { path, source } => source.report(path),
            Self::PublicKey(e) => e.report(),
            Self::BundleVersion { bundle, library, bypass, pair, .. } => {
                let mut report = new("PB-1390", Class::Environment).with("bundle", bundle).with("library", library);
                if let Some(bypass) = bypass {
                    let why = if pair.is_some() { "another pair" } else { "and another launch ABI is never let pass" };
                    report = report.with("PARBAKE_VERSION_BYPASS", format!("{bypass}, {why}"));
                }
                let report = report.help("build the bundle again with this library: parbake build …");
                match pair {
                    Some(pair) => report.help(format!("for an experiment, PARBAKE_VERSION_BYPASS={pair} lets it pass")),
                    None => report,
                }
            }
            Self::Installed(unfit) => unfit
                .iter()
                .fold(new("PB-1391", Class::Environment), |report, u| report.with(u.path.display().to_string(), &u.why).help(&u.fix)),
            Self::Store(e) => e.report(),
            Self::Source(e) => {
                let report = new("PB-1104", Class::Environment);
                std::error::Error::source(e).map_or(report.clone(), |s| report.caused_by_chain(s))
            }
            Self::Definitions { code, cause: Some(cause), .. } => new(code, Class::Environment)
                .caused_by(cause)
                .help("set PARBAKE_KERNELS to the folder `kernels` of a checkout, or unset it to use the sources inside the library"),
            Self::Definitions { code, cause: None, .. } => new(code, Class::Failed),
            Self::NoSources { .. } => new("PB-1110", Class::Environment).help("set PARBAKE_KERNELS to a folder of kernel sources, or use a build with the feature `embed-sources`"),
        }
    }
}

fn installed(unfit: &[Unfit]) -> String {
    match unfit {
        [one] => format!("installed bundle {} cannot be used", one.path.display()),
        several => format!("{} installed bundles cannot be used", several.len()),
    }
}

impl From<Unmatched> for Error {
    fn from(Unmatched { part, nearest, known }: Unmatched) -> Self {
        Self::UnknownOp { given: part, nearest, known }
    }
}

/// All gaps in one report, and one command that closes them.
fn uncovered(what: String, gaps: &[Decision]) -> Report {
    let off = gaps.iter().all(jit_is_off);
    let jit = if off { "JIT is off" } else { "they cannot be compiled here" };
    let mut report = Report::new("PB-2004", Class::Environment, format!("{what}, and {jit}"));
    for gap in gaps {
        let searched = gap.steps.iter().map(|step| {
            let target = step.target.map(|t| format!(" {t}")).unwrap_or_default();
            format!("\n{}{target}: {}", step.place, step.outcome)
        });
        let label = format!("{} on {}", gap.spec, gap.runs_on);
        report = report.with(label, gap.uri.clone() + &searched.collect::<String>());
    }
    report.help(decision::remedy(gaps, "missing.pbk"))
}

/// What failed, one after the other; the class of the worst.
fn several(what: String, errors: &[Error]) -> Report {
    let reports: Vec<Report> = errors.iter().map(Error::report).collect();
    let any = |class| reports.iter().any(|r| r.class == class);
    let class = [Class::Usage, Class::Environment].into_iter().find(|c| any(*c)).unwrap_or(Class::Failed);
    reports.iter().fold(Report::new("PB-2005", class, what), |all, report| all.caused_by(report))
}

fn jit_is_off(decision: &Decision) -> bool {
    decision.steps.iter().rfind(|s| s.place == "jit").and_then(|s| s.miss) == Some(Miss::SwitchedOff)
}

fn not_covered(decision: &Decision) -> Report {
    let jit = if jit_is_off(decision) { "JIT is off" } else { "it cannot be compiled here" };
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
