//! Where compilers are looked for. Every step leaves a line, so that "not found" says where and why.
//!
//! Order: the path that was asked for → a library that the process has mapped already (a framework's) → installed
//! toolchains → Python wheels, beside our own first → `CUDA_HOME`, `CUDA_PATH` → names that the system knows. A path that was asked for is
//! used or is an error; it is never replaced by something else.

use super::nvcc::{Nvcc, NvccSettings};
use super::{Nvfatbin, Nvrtc, Toolchain, ToolchainError, components, nvrtc, site};
use parbake_model::report::{Class, Report};
use parbake_model::{Arch, Target, Toolkit};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to look for.
#[derive(Clone, Debug)]
pub struct Search {
    /// A path that the user named: the value of `PARBAKE_NVRTC`, or of an option.
    pub explicit: Option<PathBuf>,
    /// The folder of installed toolchains.
    pub toolchains: PathBuf,
    /// The toolkit that the user named (`--toolkit`): this one or none.
    pub want: Option<Toolkit>,
    /// What the driver of this machine supports; without it the search is for a bake.
    pub driver: Option<Toolkit>,
    /// What will be compiled.
    pub target: Target,
}

/// One place that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The place.
    pub place: String,
    /// What was there, and why it is not used.
    pub outcome: String,
}

/// No usable compiler.
#[derive(Clone, Debug)]
pub struct NotFound {
    /// What was looked for: `NVRTC`.
    pub what: &'static str,
    /// What it should compile for.
    pub target: Target,
    /// Where, in order.
    pub steps: Vec<Step>,
    /// The command that brings one, or what can be installed instead.
    pub help: String,
}

impl NotFound {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "PB-1501"
    }

    /// The error in the shape that people read.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::new(self.code(), Class::Environment, self.to_string());
        for step in &self.steps {
            report = report.with("searched", format!("{}: {}", step.place, step.outcome));
        }
        report.help(&self.help)
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no usable {} for {}", self.what, self.target)
    }
}

impl std::error::Error for NotFound {}

/// The toolkit of a bake that names none: cubins of 12.9 run on every driver since 525.
#[must_use]
pub fn default_toolkit(target: Target) -> Toolkit {
    let oldest = Toolkit { major: 12, minor: 9 };
    let needed = target.arch().and_then(|a| a.facts()).map_or(oldest, |f| f.since);
    needed.max(oldest)
}

/// Looks for NVRTC.
///
/// # Errors
/// Every place that was looked at.
pub fn find_nvrtc(search: &Search) -> Result<Arc<Nvrtc>, NotFound> {
    let found = Finder { search, what: "NVRTC", stem: "libnvrtc.so" }.find(Nvrtc::open, |nvrtc| {
        (nvrtc.toolkit().unwrap_or(default_toolkit(search.target)), nvrtc.supports(search.target))
    });
    found.inspect(|nvrtc| tracing::debug!("{}", nvrtc.describe()))
}

/// Looks for nvFatbin. If the explicit path is that of an NVRTC, the nvFatbin beside it is meant.
///
/// # Errors
/// Every place that was looked at.
pub fn find_nvfatbin(search: &Search) -> Result<Arc<Nvfatbin>, NotFound> {
    Finder { search, what: "nvFatbin", stem: "libnvfatbin.so" }.find(Nvfatbin::open, |library| {
        let since = search.target.arch().and_then(|a| a.facts()).map(|f| f.since);
        let new_enough = since.is_none_or(|since| since <= library.toolkit());
        let reason = || format!("nvFatbin {} does not know {}", library.toolkit(), search.target);
        (library.toolkit(), if new_enough { Ok(()) } else { Err(reason()) })
    })
}

/// Looks for nvcc, to be run with the usual settings.
///
/// # Errors
/// Every place that was looked at.
pub fn find_nvcc(search: &Search) -> Result<Arc<Nvcc>, NotFound> {
    find_nvcc_with(search, &NvccSettings::default())
}

/// Looks for nvcc, to be run with these settings.
///
/// # Errors
/// Every place that was looked at.
pub fn find_nvcc_with(search: &Search, settings: &NvccSettings) -> Result<Arc<Nvcc>, NotFound> {
    Finder { search, what: "nvcc", stem: "nvcc" }.find(
        |path| Nvcc::open(path, settings.clone()).map(Arc::new),
        |nvcc| (nvcc.toolkit().unwrap_or(default_toolkit(search.target)), nvcc.supports(search.target)),
    )
}

/// A file that may be what is looked for.
struct Candidate {
    /// Where its step belongs among the others, whatever the order of the attempts.
    rank: usize,
    place: String,
    path: PathBuf,
    /// As far as it shows without loading the file.
    version: Option<Toolkit>,
}

struct Finder<'a> {
    search: &'a Search,
    what: &'static str,
    /// How file names start; without `.so` it is a program.
    stem: &'static str,
}

impl Finder<'_> {
    fn find<T>(
        &self,
        open: impl Fn(&Path) -> Result<T, ToolchainError>,
        judge: impl Fn(&T) -> (Toolkit, Result<(), String>),
    ) -> Result<T, NotFound> {
        let mut steps = Vec::new();
        let mut candidates = self.candidates(&mut steps);
        if self.search.want.is_none() && self.search.driver.is_none() {
            let default = default_toolkit(self.search.target);
            candidates.sort_by_key(|c| c.version != Some(default));
        }
        let mut attempt = |candidate: Candidate| {
            let usable = || {
                candidate.version.map_or(Ok(()), |version| self.acceptable(version))?;
                let opened = open(&candidate.path).map_err(|error| one_line(&error))?;
                let (version, supported) = judge(&opened);
                self.acceptable(version).and(supported).map(|()| opened)
            };
            usable().map_err(|outcome| {
                let place = format!("{}, `{}`", candidate.place, candidate.path.display());
                steps.push((candidate.rank, Step { place, outcome }));
            })
        };
        for candidate in candidates {
            if let Ok(found) = attempt(candidate) {
                return Ok(found);
            }
        }
        // Asking the loader by name loads what it finds, so it comes last and only if nothing else served.
        if self.is_library() && self.search.explicit.is_none() {
            for major in ["13", "12"] {
                let name = format!("{}.{major}", self.stem);
                for path in by_name(&name, self.stem) {
                    let place = "name known to the system".to_owned();
                    if let Ok(found) = attempt(Candidate { rank: usize::MAX, place, path, version: None }) {
                        return Ok(found);
                    }
                }
            }
            let place = format!("`{0}.13`, `{0}.12` by name", self.stem);
            steps.push((usize::MAX, Step { place, outcome: "the system knows none that serves".into() }));
        }
        steps.sort_by_key(|(rank, _)| *rank);
        let steps = steps.into_iter().map(|(_, step)| step).collect();
        Err(NotFound { what: self.what, target: self.search.target, steps, help: self.help() })
    }

    fn is_library(&self) -> bool {
        self.stem.contains(".so")
    }

    /// The command that brings what is missing; if no pinned toolkit serves, the reason and the ones there are.
    fn help(&self) -> String {
        let Search { want, driver, target, .. } = self.search;
        let (name, option) = if self.is_library() { ("cuda", "") } else { ("nvcc", " --with-nvcc") };
        let of_name = components::ALL.iter().filter(|c| c.name == name);
        let mut pinned: Vec<Toolkit> = of_name.filter_map(|c| c.version.parse().ok()).collect();
        pinned.sort();
        let since = target.arch().and_then(Arch::facts).map(|f| f.since);
        let knows = |version: Toolkit| since.is_none_or(|since| since <= version);
        let serves = |version: &Toolkit| knows(*version) && self.acceptable(*version).is_ok();
        // The default for bakes; for a driver the newest that it knows, else the nearest newer one.
        let default = Some(default_toolkit(*target)).filter(|d| pinned.contains(d) && serves(d));
        let known = driver.and_then(|driver| pinned.iter().rev().find(|v| **v <= driver && serves(v)));
        let best = known.copied().or(default).or_else(|| pinned.iter().copied().find(serves));
        let listed = || pinned.iter().map(Toolkit::to_string).collect::<Vec<_>>().join(", ");
        match (best, want) {
            (Some(best), _) => format!("parbake toolchain install {best}{option}"),
            (None, Some(want)) if pinned.contains(want) && !knows(*want) => {
                format!("CUDA {want} does not know {target}; ask for CUDA {} or newer", default_toolkit(*target))
            }
            (None, Some(want)) if !pinned.contains(want) => {
                format!("CUDA {want} cannot be installed by parbake; these can: {}", listed())
            }
            (None, _) => format!("no {} that parbake can install ({}) serves here", self.what, listed()),
        }
    }

    /// Every file in question, in the order of the places; places without one are noted at once.
    fn candidates(&self, steps: &mut Vec<(usize, Step)>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut rank = 0;
        let mut place = |place: &str, found: Vec<PathBuf>, version: Option<Toolkit>| {
            rank += 1;
            if found.is_empty() {
                let outcome = format!("no `{}` there", self.stem);
                steps.push((rank, Step { place: place.to_owned(), outcome }));
            }
            candidates.extend(found.into_iter().map(|path| {
                let version = version.or_else(|| version_beside(&path));
                Candidate { rank, place: place.to_owned(), path, version }
            }));
        };
        if let Some(explicit) = &self.search.explicit {
            place("the path that was asked for", self.at_explicit(explicit), None);
            return candidates;
        }
        // A second NVRTC in a process costs 100 MB; nvFatbin is small, and its version matters more.
        if self.stem == "libnvrtc.so" {
            let mut foreign = mapped(self.stem);
            foreign.retain(|path| !nvrtc::is_own(path));
            place("libraries of this process", foreign, None);
        }
        let trusted = parbake_model::trust::check(&self.search.toolchains, false);
        let installed = if trusted.is_ok() { self.installed() } else { Vec::new() };
        if let Err(untrusted) = trusted {
            place(&format!("installed toolchains, which are left alone: {untrusted}"), Vec::new(), None);
        } else if installed.is_empty() {
            place(&format!("installed toolchains, `{}`", self.search.toolchains.display()), Vec::new(), None);
        }
        for (version, folder) in installed {
            // The folder above it may be ours alone, and this one be everybody's.
            match parbake_model::trust::check(&folder, false) {
                Ok(()) => place(&format!("toolchain of CUDA {version}"), self.below(&folder), Some(version)),
                Err(untrusted) => {
                    place(&format!("toolchain of CUDA {version}, which is left alone: {untrusted}"), Vec::new(), None);
                }
            }
        }
        for site in &unique(site::packages().into_iter().chain(site::active()).collect()) {
            place(&format!("wheels, `{}`", site.display()), self.below(site), None);
        }
        for name in ["CUDA_HOME", "CUDA_PATH"] {
            match std::env::var_os(name).filter(|v| !v.is_empty()) {
                Some(root) => place(name, self.below(Path::new(&root)), None),
                None => place(&format!("{name}, which is not set"), Vec::new(), None),
            }
        }
        if !self.is_library() {
            place("PATH", in_path(Path::new(self.stem)).into_iter().collect(), None);
        }
        candidates
    }

    /// A file as it is; a folder by what lies in it; the path of another library of the set by what lies beside it.
    fn at_explicit(&self, explicit: &Path) -> Vec<PathBuf> {
        let name = explicit.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if explicit.is_dir() {
            return self.below(explicit);
        }
        if self.stem != "libnvrtc.so" && name.starts_with("libnvrtc") {
            let folder = explicit.parent().unwrap_or(Path::new("/"));
            let mut found = in_folder(folder, self.stem);
            // Wheels of CUDA 12 have a folder per library: <root>/nvidia/cuda_nvrtc/lib.
            let root = folder.ancestors().nth(3).filter(|_| folder.ends_with("cuda_nvrtc/lib"));
            found.extend(root.map(|root| self.below(root)).unwrap_or_default());
            return found;
        }
        vec![explicit.to_owned()]
    }

    fn below(&self, root: &Path) -> Vec<PathBuf> {
        if self.is_library() { libraries(root, self.stem) } else { programs(root, self.stem) }
    }

    /// Installed toolkits, the one to prefer first.
    fn installed(&self) -> Vec<(Toolkit, PathBuf)> {
        let prefix = if self.is_library() { "cuda-" } else { "nvcc-" };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.search.toolchains).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(Ok(version)) = name.strip_prefix(prefix).map(str::parse::<Toolkit>) {
                found.push((version, entry.path()));
            }
        }
        // The newest that the driver knows; then what is newer within its major, nearest first.
        found.sort();
        found.reverse();
        if let Some(driver) = self.search.driver {
            let newer = found.iter().take_while(|(version, _)| *version > driver).count();
            found.rotate_left(newer);
            let known = found.len() - newer;
            found[known..].reverse();
        }
        found
    }

    fn acceptable(&self, version: Toolkit) -> Result<(), String> {
        acceptable(self.search, version)
    }
}

/// Whether a toolkit of that version may be used at all.
pub(super) fn acceptable(search: &Search, version: Toolkit) -> Result<(), String> {
    let Search { want, driver, target, .. } = search;
    if let Some(want) = want.filter(|want| *want != version) {
        return Err(format!("is CUDA {version}, asked for was {want}"));
    }
    let Some(driver) = driver else { return Ok(()) };
    if version.major > driver.major {
        return Err(format!("is CUDA {version}, and the driver supports up to {driver}"));
    }
    if matches!(target, Target::Compute(..)) && version > *driver {
        return Err(format!("is CUDA {version}, whose PTX a driver for {driver} does not read"));
    }
    Ok(())
}

/// Shared objects whose name starts with `stem` below a root: a wheel folder, a toolkit, or a plain folder.
#[must_use]
pub fn libraries(root: &Path, stem: &str) -> Vec<PathBuf> {
    let mut folders = vec![root.to_owned(), root.join("lib64"), root.join("lib")];
    folders.extend(children(&root.join("nvidia")).into_iter().map(|child| child.join("lib")));
    folders.push(root.join(format!("targets/{}-linux/lib", std::env::consts::ARCH)));
    // A toolkit's `lib64` is a link to the folder for its machine.
    let folders = unique(folders.into_iter().filter_map(|folder| folder.canonicalize().ok()).collect());
    let mut found = Vec::new();
    for folder in folders {
        found.extend(in_folder(&folder, stem));
    }
    unique(found)
}

fn programs(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut folders = vec![root.join("bin")];
    folders.extend(children(&root.join("nvidia")).into_iter().map(|child| child.join("bin")));
    folders.into_iter().map(|folder| folder.join(name)).filter(|path| path.is_file()).collect()
}

fn in_folder(folder: &Path, stem: &str) -> Vec<PathBuf> {
    let version =
        |name: &str| name.strip_prefix(stem).is_some_and(|v| v.bytes().all(|c| c == b'.' || c.is_ascii_digit()));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A toolkit's folder has hundreds of files: most are told by their name alone.
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(version));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    found.sort();
    // A toolkit's folder has links to one file.
    unique(found.into_iter().map(|path| path.canonicalize().unwrap_or(path)).collect())
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let mut children: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    children.sort();
    children
}

fn unique(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut unique = Vec::new();
    for path in paths {
        if !unique.contains(&path) {
            unique.push(path);
        }
    }
    unique
}

/// The version that the builtins beside an NVRTC carry in their name.
fn version_beside(library: &Path) -> Option<Toolkit> {
    let entries = std::fs::read_dir(library.parent()?).ok()?.flatten();
    let mut names: Vec<std::ffi::OsString> = entries.map(|entry| entry.file_name()).collect();
    names.retain(|name| name.to_str().is_some_and(|n| n.starts_with("libnvrtc-builtins.so.")));
    names.sort();
    names.iter().find_map(|name| nvrtc::builtins_version(Path::new(name)))
}

/// Libraries that this process has loaded and whose name starts with `stem`, by canonical path. The loader is asked:
/// a process with a GPU has a map of thousands of lines, and reading it costs more than serving a kernel.
pub(super) fn mapped(stem: &str) -> Vec<PathBuf> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: libc::size_t, names: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the loader gives a valid record with a name that is null or terminated, and our own pointer back.
        let (name, names) = unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<Vec<u8>>>()) };
        if !name.is_null() {
            // SAFETY: as above.
            names.push(unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes().to_owned());
        }
        0
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    // SAFETY: the callback has the documented type, and `names` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    let paths = names.iter().map(|name| Path::new(std::ffi::OsStr::from_bytes(name)));
    let named = paths.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(stem)));
    unique(named.filter_map(|p| p.canonicalize().ok()).filter(|p| p.is_file()).collect())
}

/// What the system's loader knows under a bare name.
fn by_name(name: &str, stem: &str) -> Vec<PathBuf> {
    let before = mapped(stem);
    if nvrtc::load_for_good(Path::new(name)).is_err() {
        return Vec::new();
    }
    mapped(stem).into_iter().filter(|path| !before.contains(path)).collect()
}

/// A program by its name in `PATH`.
pub(super) fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|f| f.join(name)).find(|p| p.is_file())
}

pub(super) fn one_line(error: &ToolchainError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn search(target: &str) -> Search {
        let target = target.parse().unwrap();
        Search { explicit: None, toolchains: "/nonexistent".into(), want: None, driver: None, target }
    }

    fn installed(versions: &[&str], driver: Option<&str>) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for version in versions {
            std::fs::create_dir(root.path().join(format!("cuda-{version}"))).unwrap();
        }
        let driver = driver.map(|d| d.parse().unwrap());
        let search = Search { toolchains: root.path().into(), driver, ..search("sm_80") };
        let finder = Finder { search: &search, what: "NVRTC", stem: "libnvrtc.so" };
        finder.installed().into_iter().map(|(version, _)| version.to_string()).collect()
    }

    #[test]
    fn the_newest_toolkit_that_the_driver_knows_comes_first() {
        let all = ["12.9", "13.0", "13.5", "13.7"];
        assert_eq!(installed(&all, None), ["13.7", "13.5", "13.0", "12.9"]);
        assert_eq!(installed(&all, Some("13.0")), ["13.0", "12.9", "13.5", "13.7"]);
        assert_eq!(installed(&all, Some("14.0")), ["13.7", "13.5", "13.0", "12.9"]);
        assert_eq!(installed(&all, Some("12.4")), ["12.9", "13.0", "13.5", "13.7"]);
    }

    #[test]
    fn versions_are_judged_with_a_reason() {
        let judge = |search: &Search, version: &str| {
            let finder = Finder { search, what: "NVRTC", stem: "libnvrtc.so" };
            finder.acceptable(version.parse().unwrap())
        };
        let on_driver = |driver: &str, target: &str| Search { driver: driver.parse().ok(), ..search(target) };
        assert!(judge(&on_driver("12.4", "sm_90a"), "12.9").is_ok());
        assert!(judge(&on_driver("12.4", "compute_90"), "12.9").unwrap_err().contains("PTX"));
        assert!(judge(&on_driver("12.4", "sm_90a"), "13.0").unwrap_err().contains("12.4"));
        let wanted = Search { want: "12.9".parse().ok(), ..search("sm_90a") };
        assert!(judge(&wanted, "13.0").unwrap_err().contains("asked for was 12.9"));
    }

    #[test]
    fn defaults_follow_the_target() {
        for (target, toolkit) in [("sm_80", "12.9"), ("sm_100f", "12.9"), ("sm_110", "13.0"), ("sm_88", "13.0")] {
            assert_eq!(default_toolkit(target.parse().unwrap()).to_string(), toolkit);
        }
    }

    #[test]
    fn help_names_what_serves_or_says_that_nothing_does() {
        let help = |target: &str, want: Option<&str>, driver: Option<&str>| {
            let (want, driver) = (want.map(|t| t.parse().unwrap()), driver.map(|t| t.parse().unwrap()));
            Finder { search: &Search { want, driver, ..search(target) }, what: "NVRTC", stem: "libnvrtc.so" }.help()
        };
        assert_eq!(help("sm_90a", None, None), "parbake toolchain install 12.9");
        assert_eq!(help("sm_110", None, None), "parbake toolchain install 13.0");
        assert_eq!(help("sm_90a", Some("13.5"), None), "parbake toolchain install 13.5");
        assert_eq!(help("sm_90a", None, Some("13.0")), "parbake toolchain install 13.0");
        assert_eq!(help("sm_90a", None, Some("12.4")), "parbake toolchain install 12.9");
        let none = "CUDA 11.8 cannot be installed by parbake; these can: 12.9, 13.0, 13.5";
        assert_eq!(help("sm_90a", Some("11.8"), None), none);
        let old = "CUDA 12.9 does not know sm_110; ask for CUDA 13.0 or newer";
        assert_eq!(help("sm_110", Some("12.9"), None), old);
        assert!(help("sm_110", None, Some("12.4")).contains("12.9, 13.0, 13.5"));
    }

    #[test]
    fn an_explicit_path_is_never_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("libnvrtc.so.13");
        std::fs::write(&path, b"no library").unwrap();
        let search = Search { explicit: Some(path), toolchains: testing::toolchains(), ..search("sm_90a") };
        let error = find_nvrtc(&search).map(|n| n.describe()).unwrap_err();
        assert_eq!((error.steps.len(), error.code()), (1, "PB-1501"));
        let text = error.report().to_string();
        assert!(text.contains("libnvrtc-builtins") && text.contains("help: parbake toolchain install 12.9"), "{text}");
    }

    #[test]
    fn every_place_is_named() {
        let error = find_nvcc(&search("sm_90a")).map(|n| n.describe()).unwrap_err();
        let places = error.steps.iter().map(|s| s.place.as_str()).collect::<Vec<_>>().join("|");
        assert!(places.contains("/nonexistent") && places.contains("CUDA_HOME"), "{places}");
        assert_eq!(error.help, "parbake toolchain install 13.0 --with-nvcc");
    }

    #[test]
    fn installed_toolchains_are_found_by_version() {
        if testing::cuda("12.9").is_none() || testing::cuda("13.0").is_none() {
            return;
        }
        let at = |target: &str, want: Option<&str>, driver: Option<&str>| {
            let (want, driver) = (want.map(|t| t.parse().unwrap()), driver.map(|t| t.parse().unwrap()));
            let search = Search { toolchains: testing::toolchains(), want, driver, ..search(target) };
            let nvrtc = find_nvrtc(&search).unwrap().toolkit().unwrap();
            assert_eq!(find_nvfatbin(&search).unwrap().toolkit(), nvrtc);
            nvrtc.to_string()
        };
        assert_eq!(at("sm_90a", None, None), "12.9");
        assert_eq!(at("sm_110", None, None), "13.0");
        assert_eq!(at("sm_90a", Some("13.0"), None), "13.0");
        assert_eq!(at("sm_90a", None, Some("13.0")), "13.0");
        assert_eq!(at("sm_90a", None, Some("12.2")), "12.9");
    }
}
