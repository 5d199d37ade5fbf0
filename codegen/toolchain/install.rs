//! Installs pinned compilers from Python wheels through pip.
//!
//! pip brings what it is good at: indexes, mirrors, proxies, resuming. Digests are required, nothing is built, nothing
//! is resolved. The folder is staged beside its final place and renamed when complete, so it is never there by half, and
//! of two processes that install the same thing at once one adopts the other's.

use super::components::{ALL, Component};
use super::process::{self, Outcome, ProcessError};
use parbake_model::report::{Class, Report};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Written last into a staged folder; says what the folder holds.
const STAMP: &str = "component.json";
/// A slow line takes half an hour for the largest set.
const LIMIT: Duration = Duration::from_secs(3600);

/// A component that cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// No wheels are pinned for this machine.
    #[error("{component} cannot be installed on {machine}: expected x86_64-linux, for which wheels are pinned")]
    Machine {
        /// The component.
        component: String,
        /// This machine.
        machine: String,
    },
    /// No Python.
    #[error("cannot install {component}: `python3` cannot be started")]
    NoPython {
        /// The component.
        component: String,
        /// Why.
        #[source]
        source: ProcessError,
    },
    /// A Python without pip.
    #[error("cannot install {component}: `python3` has no pip")]
    NoPip {
        /// The component.
        component: String,
    },
    /// A file from the index is not the pinned one.
    #[error("a wheel of {component} is not the pinned one, so nothing was installed\n{output}")]
    Digest {
        /// The component.
        component: String,
        /// The last lines of pip.
        output: String,
    },
    /// The index cannot be reached, or lacks the pinned version.
    #[error("the wheels of {component} cannot be fetched\n{output}")]
    Fetch {
        /// The component.
        component: String,
        /// The last lines of pip.
        output: String,
    },
    /// No space.
    #[error("no space left for {component} in `{folder}` or in the temporary folder\n{output}")]
    DiskFull {
        /// The component.
        component: String,
        /// The folder of toolchains.
        folder: PathBuf,
        /// The last lines of pip, or the system's message.
        output: String,
    },
    /// pip failed in another way.
    #[error("pip could not install {component}\n{output}")]
    Pip {
        /// The component.
        component: String,
        /// The last lines of pip.
        output: String,
    },
    /// pip took too long.
    #[error("pip did not install {component} in time")]
    Process {
        /// The component.
        component: String,
        /// Why.
        #[source]
        source: ProcessError,
    },
    /// What lies there is not what it should be.
    #[error("`{folder}` is no complete {component}: {why}")]
    Incomplete {
        /// The component.
        component: String,
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
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
        source: io::Error,
    },
}

impl InstallError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Machine { .. } => "PB-1531",
            Self::NoPython { .. } => "PB-1532",
            Self::NoPip { .. } => "PB-1533",
            Self::Digest { .. } => "PB-1534",
            Self::Fetch { .. } => "PB-1535",
            Self::DiskFull { .. } => "PB-1536",
            Self::Pip { .. } | Self::Process { .. } => "PB-1537",
            Self::Incomplete { .. } => "PB-1538",
            Self::Io { .. } => "PB-1539",
        }
    }

    /// The error in the shape that people read.
    #[must_use]
    pub fn report(&self) -> Report {
        let text = self.to_string();
        let (what, output) = text.split_once('\n').unwrap_or((&text, ""));
        let mut report = Report::new(self.code(), Class::Environment, what);
        if !output.is_empty() {
            report = report.with("pip", output);
        }
        if let Some(source) = std::error::Error::source(self) {
            report = report.caused_by_chain(source);
        }
        match self {
            Self::NoPython { .. } => report.help("install Python 3 with pip, or put one first in PATH"),
            Self::NoPip { .. } => report.help("python3 -m ensurepip, or install the package python3-pip"),
            Self::Digest { .. } => report.help("python3 -m pip cache purge; if it stays, the index serves other files"),
            Self::Fetch { .. } => {
                report.help("name a mirror in PIP_INDEX_URL, or a folder of wheels in PIP_FIND_LINKS")
            }
            Self::Incomplete { folder, .. } => report.help(format!("rm -r {}", folder.display())),
            _ => report,
        }
    }
}

/// What a folder says of itself.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Stamp {
    name: String,
    version: String,
    licence: String,
    wheels: Vec<String>,
}

impl Stamp {
    fn of(component: &Component) -> Self {
        Self {
            name: component.name.to_owned(),
            version: component.version.to_owned(),
            licence: component.licence.to_owned(),
            wheels: component
                .pins
                .iter()
                .map(|p| format!("{}=={} sha256:{}", p.package, p.version, p.sha256))
                .collect(),
        }
    }
}

/// Installs a component into the folder of toolchains and gives its path. Already there is no work.
///
/// # Errors
/// No Python or pip, no network, other bytes than the pinned ones, no space, or something else in that place.
pub fn install(component: &Component, folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, InstallError> {
    let name = component.folder();
    let machine = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    if machine != "x86_64-linux" {
        return Err(InstallError::Machine { component: name, machine });
    }
    let place = folder.join(&name);
    if place.exists() {
        verify(component, &place)?;
        progress(&format!("{name} is already in {}", place.display()));
        return Ok(place);
    }
    progress(&format!("{name}: licence: {}", component.licence));
    std::fs::create_dir_all(folder).map_err(io_error("make the folder", folder, &name))?;
    let staging = tempfile::Builder::new().prefix(".staging-").tempdir_in(folder);
    let staging = staging.map_err(io_error("make a folder in", folder, &name))?;
    let staged = staging.path().join(&name);
    let requirements = staging.path().join("requirements.txt");
    std::fs::write(&requirements, requirements_text(component)).map_err(io_error("write", &requirements, &name))?;
    for pin in component.pins {
        progress(&format!("{name}: {} {}", pin.package, pin.version));
    }
    run_pip(&name, folder, &staged, &requirements, staging.path())?;

    let stamp = serde_json::to_string_pretty(&Stamp::of(component)).unwrap_or_default() + "\n";
    let path = staged.join(STAMP);
    std::fs::write(&path, stamp).map_err(io_error("write", &path, &name))?;
    verify(component, &staged)?;
    match std::fs::rename(&staged, &place) {
        Ok(()) => progress(&format!("{name}: installed in {}", place.display())),
        // Somebody else was first.
        Err(_) if place.exists() => verify(component, &place)?,
        Err(error) => return Err(io_error("rename the staged folder to", &place, &name)(error)),
    }
    Ok(place)
}

fn requirements_text(component: &Component) -> String {
    component.pins.iter().fold(String::new(), |mut text, pin| {
        let _ = writeln!(text, "{}=={} --hash=sha256:{}", pin.package, pin.version, pin.sha256);
        text
    })
}

fn run_pip(
    name: &str,
    folder: &Path,
    staged: &Path,
    requirements: &Path,
    temporary: &Path,
) -> Result<(), InstallError> {
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile"])
        .args(["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--target"])
        .arg(staged)
        .arg("-r")
        .arg(requirements);
    // Settings about places other than `--target`; indexes, mirrors, proxies and certificates apply as they are.
    for variable in ["PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_CONSTRAINT"] {
        command.env_remove(variable);
    }
    // pip unpacks in its temporary folder first and moves from there: on the same file system that is a rename.
    command.env("TMPDIR", temporary).env("LC_ALL", "C.UTF-8").env("PIP_ROOT_USER_ACTION", "ignore");
    let component = name.to_owned();
    let outcome = match process::run(command, LIMIT) {
        Ok(outcome) => outcome,
        Err(source @ ProcessError::Start { .. }) => return Err(InstallError::NoPython { component, source }),
        Err(source) => return Err(InstallError::Process { component, source }),
    };
    if outcome.status.success() { Ok(()) } else { Err(judge(component, folder, &outcome)) }
}

/// Sorts pip's failures by what a user can do about them.
fn judge(component: String, folder: &Path, outcome: &Outcome) -> InstallError {
    let log = outcome.log();
    let lines: Vec<&str> = log.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    let output = lines[lines.len().saturating_sub(12)..].join("\n");
    let said = |texts: &[&str]| texts.iter().any(|text| log.contains(text));
    if said(&["No module named pip"]) {
        InstallError::NoPip { component }
    } else if said(&["DO NOT MATCH THE HASHES"]) {
        InstallError::Digest { component, output }
    } else if said(&["No space left on device", "Disk quota exceeded"]) {
        InstallError::DiskFull { component, folder: folder.to_owned(), output }
    } else if said(&[
        "No matching distribution",
        "Could not find a version",
        "Max retries exceeded",
        "Connection",
        "connection",
        "name resolution",
        "Could not fetch",
        "HTTP error",
        "timed out",
        "SSLError",
        "ProxyError",
    ]) {
        InstallError::Fetch { component, output }
    } else {
        InstallError::Pip { component, output }
    }
}

/// Whether a folder holds a component completely: its stamp, its main files, and every file that the wheels list, by
/// size. pip has checked the digests of the wheels; what can still be wrong is what was written after that.
///
/// # Errors
/// What is missing or different.
pub fn verify(component: &Component, folder: &Path) -> Result<(), InstallError> {
    let wrong =
        |why: String| InstallError::Incomplete { component: component.folder(), folder: folder.to_owned(), why };
    let stamp = read_stamp(folder).ok_or_else(|| wrong(format!("no readable `{STAMP}`")))?;
    if stamp != Stamp::of(component) {
        return Err(wrong(format!("expected {:?}, got {:?}", Stamp::of(component).wheels, stamp.wheels)));
    }
    for file in component.files {
        let mut start = [0; 4];
        let read = std::fs::File::open(folder.join(file)).and_then(|mut f| f.read_exact(&mut start));
        if read.is_err() || start != *b"\x7fELF" {
            return Err(wrong(format!("`{file}` is missing or no ELF file")));
        }
    }
    for (file, bytes) in recorded(folder) {
        match std::fs::metadata(folder.join(&file)) {
            Ok(metadata) if metadata.len() == bytes => {}
            Ok(metadata) => return Err(wrong(format!("`{file}` has {} bytes, expected {bytes}", metadata.len()))),
            Err(error) => return Err(wrong(format!("`{file}`: {error}"))),
        }
    }
    Ok(())
}

/// Files and sizes that the wheels' `RECORD`s list. Scripts are listed outside of the target folder and left out.
fn recorded(folder: &Path) -> Vec<(String, u64)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let record = std::fs::read_to_string(entry.path().join("RECORD")).unwrap_or_default();
        files.extend(record.lines().filter_map(|line| {
            let mut fields = line.rsplitn(3, ',');
            let bytes = fields.next()?.parse().ok()?;
            let file = fields.nth(1)?.trim_matches('"');
            (!file.starts_with("..") && !file.starts_with('/')).then(|| (file.to_owned(), bytes))
        }));
    }
    files
}

fn read_stamp(folder: &Path) -> Option<Stamp> {
    serde_json::from_slice(&std::fs::read(folder.join(STAMP)).ok()?).ok()
}

fn io_error<'a>(
    doing: &'static str,
    path: &'a Path,
    component: &'a str,
) -> impl FnOnce(io::Error) -> InstallError + 'a {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => InstallError::DiskFull {
            component: component.to_owned(),
            folder: path.to_owned(),
            output: source.to_string(),
        },
        _ => InstallError::Io { doing, path: path.to_owned(), source },
    }
}

/// An installed component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Installed {
    /// `cuda`, `nvcc` or `libclang`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it is.
    pub path: PathBuf,
    /// How much it takes.
    pub bytes: u64,
}

/// What is installed in a folder of toolchains, in the order of the table of components, then others by name.
#[must_use]
pub fn list(folder: &Path) -> Vec<Installed> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if let Some(stamp) = read_stamp(&path).filter(|_| !hidden) {
            found.push(Installed { name: stamp.name, version: stamp.version, bytes: size(&path), path });
        }
    }
    let rank =
        |i: &Installed| ALL.iter().position(|c| c.name == i.name && c.version == i.version).unwrap_or(usize::MAX);
    found.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.path.cmp(&b.path)));
    found
}

fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
