//! What can go wrong between a unit and its bytes.

use super::process::ProcessError;
use parbake_model::Target;
use parbake_model::report::{Class, Report};
use std::path::PathBuf;

/// A toolchain that cannot be used, or a compilation that failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// The library cannot be loaded.
    #[error("cannot load `{path}`")]
    Load {
        /// The library.
        path: PathBuf,
        /// Why.
        #[source]
        source: libloading::Error,
    },
    /// The library lacks a function.
    #[error("`{path}` has no function `{name}`: expected NVRTC or nvFatbin of CUDA 12.0 or newer")]
    Symbol {
        /// The library.
        path: PathBuf,
        /// The function.
        name: &'static str,
    },
    /// What was found is not a usable compiler.
    #[error("`{path}` is not a usable compiler: {why}")]
    Unusable {
        /// The compiler.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The compiler does not know the target.
    #[error("cannot compile for {target}: {reason}")]
    Unsupported {
        /// What was asked for.
        target: Target,
        /// Why not, naming the compiler.
        reason: String,
    },
    /// A manifest that another toolchain planned.
    #[error("the compilation was planned by another toolchain: expected `{here}`, got `{planned}`")]
    Foreign {
        /// The id in the manifest.
        planned: String,
        /// The id of the toolchain that was asked to run it.
        here: String,
    },
    /// A name in the manifest that is no plain relative path.
    #[error("`{name}` cannot be a file name of a unit: expected a relative path of plain parts")]
    Name {
        /// The name.
        name: String,
    },
    /// A text with a NUL byte.
    #[error("`{what}` holds a NUL byte")]
    Nul {
        /// Which text.
        what: String,
    },
    /// A variable that adds options behind the key's back.
    #[error(
        "the environment variable `{name}` is set to `{value}`: it changes what the compiler does without being part of any key"
    )]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The compiler found errors in the sources.
    #[error("{toolchain} cannot compile `{unit}` for {target}\n{log}")]
    Compile {
        /// The toolchain's id.
        toolchain: String,
        /// The unit's name.
        unit: String,
        /// What it was compiled for.
        target: Target,
        /// What the compiler said.
        log: String,
    },
    /// The compiler does not know an option.
    #[error("{toolchain} refused the options `{options}`\n{log}")]
    Options {
        /// The toolchain's id.
        toolchain: String,
        /// The options.
        options: String,
        /// What the compiler said.
        log: String,
    },
    /// A call into the library failed for another reason.
    #[error("{toolchain}: {call} failed with code {code} ({text})")]
    Call {
        /// The toolchain's id.
        toolchain: String,
        /// The function.
        call: &'static str,
        /// The library's code; newer libraries have codes that we do not know.
        code: i32,
        /// The library's own text for the code.
        text: String,
    },
    /// The compiler reported success, but what it left is no image.
    #[error("{toolchain} reported success for `{unit}`, but its output is no {expected}: {got}")]
    Output {
        /// The toolchain's id.
        toolchain: String,
        /// The unit's name.
        unit: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A child process could not be run to its end.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The compiler of the system cannot be found.
    #[error("no C++ compiler found: {why}")]
    NoHostCompiler {
        /// What `cc` said.
        why: String,
    },
    /// A file or a folder cannot be used.
    #[error("cannot {doing} `{path}`")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A kernel that is not what its launcher was compiled for.
    #[error("`{unit}` is not the kernel that its op promises: {why}")]
    Promise {
        /// The unit's name.
        unit: String,
        /// What is expected, and what is there.
        why: String,
    },
    /// A Python that cannot run Triton.
    #[error("`{path}` cannot be run: {why}")]
    Interpreter {
        /// The Python, or the Triton that has none.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The thread of a compilation could not be started.
    #[error("cannot start the compiler's thread")]
    Thread(#[source] std::io::Error),
}

impl ToolchainError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Load { .. } => "PB-1502",
            Self::Symbol { .. } => "PB-1503",
            Self::Unusable { .. } => "PB-1504",
            Self::Unsupported { .. } => "PB-1505",
            Self::Foreign { .. } => "PB-1506",
            Self::Name { .. } | Self::Nul { .. } => "PB-1507",
            Self::Environment { .. } => "PB-1508",
            Self::Compile { .. } => "PB-1509",
            Self::Options { .. } => "PB-1510",
            Self::Call { .. } => "PB-1511",
            Self::Output { .. } => "PB-1512",
            Self::Process(error) => error.code(),
            Self::NoHostCompiler { .. } => "PB-1515",
            Self::Io { .. } => "PB-1516",
            Self::Thread(_) => "PB-1517",
            Self::Promise { .. } => "PB-1560",
            Self::Interpreter { .. } => "PB-1561",
        }
    }

    /// The error in the shape that people read.
    #[must_use]
    pub fn report(&self) -> Report {
        let class = match self {
            Self::Compile { .. } | Self::Options { .. } | Self::Output { .. } | Self::Call { .. } => Class::Failed,
            Self::Foreign { .. } | Self::Name { .. } | Self::Nul { .. } | Self::Promise { .. } => Class::Failed,
            _ => Class::Environment,
        };
        let text = self.to_string();
        let (what, log) = text.split_once('\n').unwrap_or((&text, ""));
        let mut report = Report::new(self.code(), class, what);
        if !log.is_empty() {
            report = report.with("log", log);
        }
        if let Some(source) = std::error::Error::source(self) {
            report = report.caused_by_chain(source);
        }
        match self {
            Self::Load { .. } | Self::Symbol { .. } | Self::Unusable { .. } => {
                report.help("parbake toolchain install 12.9")
            }
            Self::Interpreter { .. } => {
                report.help("name a Python in PARBAKE_TRITON_PYTHON, or: parbake toolchain install triton")
            }
            Self::Environment { name, .. } => report.help(format!("unset {name}")),
            Self::Process(error) => error.help().map_or(report.clone(), |help| report.help(help)),
            Self::NoHostCompiler { .. } => report.help("install g++ or clang++, or name one in CXX"),
            _ => report,
        }
    }
}
