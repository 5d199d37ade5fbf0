//! Installs pinned compilers from Python wheels through pip.
//!
//! pip brings what it is good at: indexes, mirrors, proxies, resuming. Digests are required, nothing is built, nothing
//! is resolved. The folder is staged beside its final place and renamed when complete, so it is never there by half, and
//! of two processes that install the same thing at once one adopts the other's.

use super::components::{ALL, Component};
use super::folder;
use super::process::{self, Outcome, ProcessError};
use parbake_model::report::{Class, Report};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
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
    /// Nothing may be fetched.
    #[error("{component} is not installed, and nothing may be fetched")]
    Offline {
        /// The component.
        component: String,
        /// The packages that would have been asked for.
        packages: String,
    },
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
            Self::Offline { .. } => "PB-1540",
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
            Self::Offline { packages, .. } => report
                .with("PARBAKE_OFFLINE", "on")
                .with("not asked", format!("pip, for {packages}"))
                .help("unset PARBAKE_OFFLINE, or copy the component from another machine's PARBAKE_TOOLCHAINS"),
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
                .map(|p| format!("{}=={} sha256:{}", p.package, p.version, p.sha256.join(",")))
                .collect(),
        }
    }
}

/// Installs a component into the folder of toolchains and gives its path. Already there is no work.
///
/// # Errors
/// No Python or pip, no network, other bytes than the pinned ones, no space, or something else in that place.
pub fn install(
    component: &Component,
    folder: &Path,
    offline: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, InstallError> {
    let name = component.folder();
    if offline && !folder.join(&name).exists() {
        let packages: Vec<String> = component.pins.iter().map(|p| format!("{} {}", p.package, p.version)).collect();
        return Err(InstallError::Offline { component: name, packages: packages.join(", ") });
    }
    install_with(Command::new("python3"), component, folder, progress)
}

fn install_with(
    python: Command,
    component: &Component,
    folder: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, InstallError> {
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
    // Nobody else may write there, whatever the umask is: what is found there is run.
    folder::make_for_all(folder).map_err(io_error("make the folder", folder, &name))?;
    let staging = tempfile::Builder::new().prefix(".staging-").tempdir_in(folder);
    let staging = staging.map_err(io_error("make a folder in", folder, &name))?;
    let staged = staging.path().join(&name);
    let requirements = staging.path().join("requirements.txt");
    std::fs::write(&requirements, requirements_text(component)).map_err(io_error("write", &requirements, &name))?;
    for pin in component.pins {
        progress(&format!("{name}: {} {}", pin.package, pin.version));
    }
    run_pip(python, &name, folder, &staged, &requirements)?;

    let stamp = serde_json::to_string_pretty(&Stamp::of(component)).unwrap_or_default() + "\n";
    let path = staged.join(STAMP);
    let written = std::fs::File::options().write(true).create(true).truncate(true).mode(0o644).open(&path);
    written.and_then(|mut file| file.write_all(stamp.as_bytes())).map_err(io_error("write", &path, &name))?;
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
        let hashes: String = pin.sha256.iter().map(|digest| format!(" --hash=sha256:{digest}")).collect();
        let _ = writeln!(text, "{}=={}{hashes}", pin.package, pin.version);
        text
    })
}

fn run_pip(
    mut command: Command,
    name: &str,
    folder: &Path,
    staged: &Path,
    requirements: &Path,
) -> Result<(), InstallError> {
    command
        .args(["-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile"])
        .args(["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--target"])
        .arg(staged)
        .arg("-r")
        .arg(requirements);
    // Settings about other places than `--target`; indexes, mirrors, proxies and certificates apply as they are.
    for variable in [
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_USER",
        "PIP_REQUIREMENT",
        "PIP_CONSTRAINT",
        "PIP_REQUIRE_VIRTUALENV",
    ] {
        command.env_remove(variable);
    }
    // pip unpacks in its temporary folder and moves from there: on one file system that is a rename.
    let temporary = requirements.parent().unwrap_or(folder);
    command.env("TMPDIR", temporary).env("LC_ALL", "C.UTF-8").env("PIP_ROOT_USER_ACTION", "ignore");
    // What it unpacks is run: the umask of this process may let others write there.
    // SAFETY: between fork and exec, only `umask` is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let umask = libc::umask(0o022);
            libc::umask(umask | 0o022);
            Ok(())
        })
    };
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
    /// `cuda`, `nvcc`, `libclang` or `triton`.
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

#[cfg(test)]
mod tests {
    use super::super::components::Pin;
    use super::super::testing;
    use super::*;
    use parbake_model::Digest;
    use std::os::unix::process::ExitStatusExt;

    /// A wheel made by hand, a component that pins it, and a Python that finds it without any index.
    struct Fixture {
        wheels: tempfile::TempDir,
        component: Component,
    }

    const PACKAGE: &str = "parbake-test-component";

    impl Fixture {
        /// Nothing if this machine has no pip.
        fn new() -> Option<Self> {
            let wheels = tempfile::tempdir().unwrap();
            let script = r#"
import sys, zipfile, pip
name, info = "parbake_test_component", "parbake_test_component-1.0.dist-info"
texts = {
    "part/lib/libpart.so": "\x7fELF and more",
    info + "/METADATA": "Metadata-Version: 2.1\nName: parbake-test-component\nVersion: 1.0\n",
    info + "/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
record = "".join("%s,,%d\n" % (n, len(t)) for n, t in texts.items()) + info + "/RECORD,,\n"
with zipfile.ZipFile(sys.argv[1] + "/" + name + "-1.0-py3-none-any.whl", "w") as wheel:
    for n, t in {**texts, info + "/RECORD": record}.items():
        wheel.writestr(n, t)
"#;
            let mut python = Command::new("python3");
            python.args(["-c", script]).arg(wheels.path());
            let made = process::run(python, Duration::from_secs(60)).is_ok_and(|outcome| outcome.status.success());
            if !made {
                testing::say("skipped: needs python3 with pip");
                return None;
            }
            let wheel = wheels.path().join("parbake_test_component-1.0-py3-none-any.whl");
            let digest = Digest::of(&std::fs::read(wheel).unwrap()).to_string();
            let component = component(&digest);
            Some(Self { wheels, component })
        }

        fn python(&self) -> Command {
            let mut python = Command::new("python3");
            python.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", self.wheels.path()).env("PIP_NO_CACHE_DIR", "1");
            python
        }
    }

    fn component(digest: &str) -> Component {
        let digest: &'static str = Box::leak(digest.to_owned().into_boxed_str());
        let sha256 = Box::leak(Box::new([digest]));
        let pins = Box::leak(Box::new([Pin { package: PACKAGE, version: "1.0", sha256 }]));
        Component { name: "part", version: "1.0", pins, files: &["part/lib/libpart.so"], licence: "none" }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_wheel_is_installed_once_by_many() {
        let Some(fixture) = Fixture::new() else { return };
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("deep/toolchains");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| install_with(fixture.python(), &fixture.component, &folder, &mut |_| {}).unwrap());
            }
        });
        assert_eq!(names(&folder), ["part-1.0"]);
        let mut said = String::new();
        // No Python is needed for what is there.
        let python = Command::new("/nonexistent/python3");
        let path = install_with(python, &fixture.component, &folder, &mut |line| said += line).unwrap();
        assert!(said.contains("already"), "{said}");
        let installed = list(&folder);
        assert_eq!((installed.len(), &installed[0].path, installed[0].version.as_str()), (1, &path, "1.0"));
        assert!(installed[0].bytes > 100);

        std::fs::write(path.join("part/lib/libpart.so"), b"\x7fELF cut").unwrap();
        let error = install_with(fixture.python(), &fixture.component, &folder, &mut |_| {}).unwrap_err();
        assert_eq!(error.code(), "PB-1538");
        assert!(error.report().to_string().contains("help: rm -r "), "{error}");
    }

    #[test]
    fn nobody_else_may_write_what_is_installed_whatever_the_umask() {
        use std::os::unix::fs::MetadataExt;
        let Some(fixture) = Fixture::new() else { return };
        let folder = tempfile::tempdir().unwrap();
        let mut python = fixture.python();
        // The umask of one child: that of this process is all tests'.
        // SAFETY: `umask` is async-signal-safe.
        unsafe {
            python.pre_exec(|| {
                libc::umask(0);
                Ok(())
            })
        };
        let path = install_with(python, &fixture.component, folder.path(), &mut |_| {}).unwrap();
        let mut open = vec![path];
        while let Some(next) = open.pop() {
            let facts = std::fs::symlink_metadata(&next).unwrap();
            assert_eq!(facts.mode() & 0o022, 0, "{} {:o}", next.display(), facts.mode());
            if facts.is_dir() {
                open.extend(std::fs::read_dir(next).unwrap().map(|e| e.unwrap().path()));
            }
        }
    }

    #[test]
    fn another_digest_installs_nothing() {
        let Some(fixture) = Fixture::new() else { return };
        let folder = tempfile::tempdir().unwrap();
        let other = component(&"0".repeat(64));
        let error = install_with(fixture.python(), &other, folder.path(), &mut |_| {}).unwrap_err();
        assert_eq!(error.code(), "PB-1534", "{error}");
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_the_index_lacks_is_a_fetch_error_with_pips_words() {
        let Some(fixture) = Fixture::new() else { return };
        let (folder, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut python = fixture.python();
        python.env("PIP_FIND_LINKS", empty.path());
        let error = install_with(python, &fixture.component, folder.path(), &mut |_| {}).unwrap_err();
        assert_eq!(error.code(), "PB-1535", "{error}");
        assert!(error.to_string().contains(PACKAGE), "{error}");
    }

    #[test]
    fn other_failures_have_their_own_codes() {
        let folder = tempfile::tempdir().unwrap();
        let component = component(&"0".repeat(64));
        let python = Command::new("/nonexistent/python3");
        let error = install_with(python, &component, folder.path(), &mut |_| {}).unwrap_err();
        assert_eq!(error.code(), "PB-1532", "{error}");

        let judged = |stderr: &str| {
            let status = std::process::ExitStatus::from_raw(256);
            let outcome = Outcome { status, stdout: String::new(), stderr: stderr.into() };
            judge("part-1.0".into(), Path::new("/t"), &outcome).code()
        };
        assert_eq!(judged("/usr/bin/python3: No module named pip"), "PB-1533");
        assert_eq!(
            judged("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"),
            "PB-1536"
        );
        assert_eq!(judged("WARNING: Retrying\nConnection broken: NewConnectionError"), "PB-1535");
        assert_eq!(judged("Traceback"), "PB-1537");
    }

    #[test]
    fn installed_components_are_complete() {
        for component in ALL {
            let folder = testing::toolchains().join(component.folder());
            if folder.exists() {
                verify(component, &folder).unwrap();
            }
        }
    }
}
