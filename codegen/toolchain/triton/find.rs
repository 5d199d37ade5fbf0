//! Where Triton is looked for: the Python that was asked for → installed toolchains → the environments in question.

use super::super::find::{NotFound, Search, Step, acceptable, in_path, one_line};
use super::super::{Toolchain, ToolchainError, process, site};
use super::package::Package;
use super::{Triton, TritonSettings};
use parbake_model::trust;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The command that brings it.
const INSTALL: &str = "parbake toolchain install triton";
/// Prints the folder of packages that has it.
const WHERE: &str = "import importlib.util as u, os; s = u.find_spec('triton'); \
                     print(os.path.dirname(s.submodule_search_locations[0]) if s and s.submodule_search_locations else '')";
/// Prints a Python's version as wheels name it.
const VERSION: &str = "import sys; print('%d.%d' % sys.version_info[:2])";

/// Looks for Triton. The explicit path of the search is that of a Python.
///
/// # Errors
/// Every place that was looked at.
pub fn find_triton(search: &Search, settings: &TritonSettings) -> Result<Arc<Triton>, NotFound> {
    let mut steps = Vec::new();
    for (place, site, python) in places(search, &mut steps) {
        let mut note = |outcome: String| steps.push(Step { place: place.clone(), outcome });
        match attempt(search, settings, &site, python.as_deref()) {
            None => note("no Triton there".to_owned()),
            Some(Err(why)) => note(why),
            Some(Ok(triton)) => {
                tracing::debug!("{}", triton.describe());
                return Ok(Arc::new(triton));
            }
        }
    }
    Err(NotFound { what: "Triton", target: search.target, steps, help: help(search) })
}

/// Installing helps with nothing but its absence.
fn help(search: &Search) -> String {
    match (search.want, &search.explicit) {
        (Some(want), _) => format!("Triton brings its own compiler: bake its ops without asking for CUDA {want}"),
        (None, Some(_)) => format!("{INSTALL}, and unset PARBAKE_TRITON_PYTHON"),
        (None, None) => INSTALL.to_owned(),
    }
}

/// Folders of packages, each with its name for people and the Python that it belongs to.
fn places(search: &Search, steps: &mut Vec<Step>) -> Vec<(String, PathBuf, Option<PathBuf>)> {
    let mut found = Vec::new();
    if let Some(python) = &search.explicit {
        let place = format!("the Python that was asked for, `{}`", python.display());
        match ask(python, WHERE) {
            Ok(site) if !site.is_empty() => found.push((place, site.into(), Some(python.clone()))),
            Ok(_) => steps.push(Step { place, outcome: "it has no Triton".to_owned() }),
            Err(error) => steps.push(Step { place, outcome: one_line(&error) }),
        }
    }
    let folder = &search.toolchains;
    let mut installed: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    installed.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("triton-")));
    installed.sort();
    let place = format!("installed toolchains, `{}`", folder.display());
    if installed.is_empty() {
        steps.push(Step { place, outcome: "no Triton there".to_owned() });
    }
    for site in installed.into_iter().rev() {
        let trusted = trust::check(folder, false).and_then(|()| trust::check(&site, false));
        let place = format!("installed toolchains, `{}`", site.display());
        match trusted {
            Ok(()) => found.push((place, site, search.explicit.clone())),
            Err(untrusted) => steps.push(Step { place, outcome: format!("left alone: {untrusted}") }),
        }
    }
    if search.explicit.is_none() {
        for site in site::packages().into_iter().chain(site::active()) {
            // <environment>/lib/python3.11/site-packages
            let python = site.ancestors().nth(3).map(|root| root.join("bin/python3")).filter(|p| p.is_file());
            found.push((format!("wheels, `{}`", site.display()), site, python));
        }
    }
    found
}

fn attempt(
    search: &Search,
    settings: &TritonSettings,
    site: &Path,
    python: Option<&Path>,
) -> Option<Result<Triton, String>> {
    let opened = Package::read(site)?.and_then(|package| {
        let python = interpreter(&package, python)?;
        Triton::of(package, python, settings.clone())
    });
    Some(opened.map_err(|error| one_line(&error)).and_then(|triton| {
        let toolkit = triton.toolkit().expect("bug: Triton has a toolkit");
        acceptable(search, toolkit).and(triton.supports(search.target)).map(|()| triton)
    }))
}

/// The Python to run a package with: the one that it belongs to, or one of its version that is in `PATH`.
fn interpreter(package: &Package, own: Option<&Path>) -> Result<PathBuf, ToolchainError> {
    let named = format!("python{}", package.python);
    let in_path = || [named.as_str(), "python3"].into_iter().filter_map(|name| in_path(Path::new(name))).collect();
    let candidates: Vec<PathBuf> = own.map_or_else(in_path, |own| vec![own.to_owned()]);
    let mut seen = Vec::new();
    for python in candidates {
        match ask(&python, VERSION) {
            Ok(version) if version == package.python => return Ok(python),
            Ok(version) => seen.push(format!("`{}` is Python {version}", python.display())),
            Err(error) => seen.push(one_line(&error)),
        }
    }
    let seen = if seen.is_empty() { "none is in PATH".to_owned() } else { seen.join("; ") };
    let (path, needs) = (package.site.clone(), &package.python);
    Err(ToolchainError::Interpreter { path, why: format!("it needs Python {needs}: {seen}") })
}

/// The one line that a short program prints.
fn ask(python: &Path, program: &str) -> Result<String, ToolchainError> {
    let mut command = process::compiler(python, Path::new("/"));
    command.env("TMPDIR", std::env::temp_dir()).args(["-I", "-B", "-c", program]);
    let outcome = process::run(command, Duration::from_secs(60))?;
    if outcome.status.success() {
        return Ok(outcome.stdout.trim().to_owned());
    }
    Err(ToolchainError::Interpreter { path: python.to_owned(), why: outcome.log() })
}
