//! The system's C++ compiler: where it is, and which build of it.
//!
//! Asking a compiler what it is costs five processes, 30 to 70 ms, more than serving a kernel from the store. The ELF
//! build ids of its parts say the same and cost some small reads: the driver, the compiler proper that it starts, the
//! assembler and the linker. A compiler that is a script or goes by a name that tells nothing (`ccache` behind a link) is
//! asked, because what it starts does not show.

use super::build_id::{BuildId, build_id};
use super::{ToolchainError, find, process};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A C++ compiler.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Whether it is GCC; otherwise it is Clang, or close enough.
    pub(super) gnu: bool,
    /// Part → which build of it: what a key needs.
    pub(super) parts: Vec<(String, String)>,
}

/// Variables by which `cc` picks another compiler than `CXX` or `c++`.
const CHOICES: &[&str] = &["HOST_CXX", "TARGET_CXX"];

impl Compiler {
    /// What `CXX` names, else the usual names.
    ///
    /// # Errors
    /// If there is none, or it does not say what it is.
    pub(super) fn find() -> Result<Self, ToolchainError> {
        if let Some(compiler) = Self::by_build() {
            return Ok(compiler);
        }
        let (path, gnu) = search()?;
        let parts = vec![("says".to_owned(), ask(&path)?)];
        Ok(Self { path, gnu, parts })
    }

    /// Whether an upgrade has replaced it since it was found. What is asked rather than read is not asked again.
    pub(super) fn was_replaced(&self) -> bool {
        let read = self.parts.iter().any(|(name, _)| name == "driver");
        read && Self::by_build().is_some_and(|now| now.path == self.path && now.parts != self.parts)
    }

    /// `g++` or `clang++`.
    pub(super) fn name(&self) -> &'static str {
        if self.gnu { "g++" } else { "clang++" }
    }

    /// The fast way, where the name says the family and the files say the build.
    fn by_build() -> Option<Self> {
        let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let for_machine = [format!("CXX_{machine}"), format!("CXX_{}", machine.replace('-', "_"))];
        let others = CHOICES.iter().map(|name| (*name).to_owned()).chain(for_machine);
        if others.into_iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty())) {
            return None;
        }
        let name = std::env::var("CXX").unwrap_or_default();
        let name = if name.is_empty() { "c++".to_owned() } else { name };
        let path = Path::new(&name);
        let path = if path.is_absolute() { path.to_owned() } else { find::in_path(path)? };
        let real = path.canonicalize().ok()?;
        let gnu = family(real.file_name()?.to_str()?)?;
        let mut parts = vec![("driver".to_owned(), elf(&real)?)];
        if gnu {
            parts.extend(proper(&real));
        }
        for tool in ["as", "ld"] {
            let tool_path = find::in_path(Path::new(tool))?.canonicalize().ok()?;
            parts.push((tool.to_owned(), build_id(&tool_path).ok()?.to_string()));
        }
        // A file and its family, so that two names of one build are one compiler.
        Some(Self { path, gnu, parts })
    }
}

/// The build id of an ELF file; a script has none that means anything.
fn elf(path: &Path) -> Option<String> {
    match build_id(path).ok()? {
        id @ BuildId::Gnu(_) => Some(id.to_string()),
        BuildId::Content(_) => None,
    }
}

/// Whether a file's name is that of a GCC (true) or a Clang (false): `x86_64-linux-gnu-g++-12`, `clang-14`, `c++`.
fn family(name: &str) -> Option<bool> {
    let version = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let stem = name.trim_end_matches(version);
    let ends = |tool: &str| stem == tool || stem.ends_with(&format!("-{tool}"));
    if ends("clang++") || ends("clang") {
        Some(false)
    } else if ends("g++") {
        Some(true)
    } else {
        None
    }
}

/// Every `cc1plus` that belongs to a GCC's installation: an update of the compiler proper alone changes the key too.
fn proper(driver: &Path) -> Vec<(String, String)> {
    let children = |folder: PathBuf| {
        let list = std::fs::read_dir(folder).into_iter().flatten().flatten();
        list.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let prefix = driver.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let mut found = Vec::new();
    for library in ["lib/gcc", "libexec/gcc"] {
        let versions = children(prefix.join(library)).into_iter().flat_map(children);
        let files = versions.map(|version| version.join("cc1plus")).filter(|file| file.is_file());
        found.extend(files.filter_map(|file| Some(build_id(&file).ok()?.to_string())));
    }
    found.sort();
    found.dedup();
    found.into_iter().map(|id| ("cc1plus".to_owned(), id)).collect()
}

/// The compiler that `cc` finds, and whether it is GCC.
fn search() -> Result<(PathBuf, bool), ToolchainError> {
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // Outside of a build script `cc` must be told what it would read from Cargo.
    let tool = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .cargo_warnings(false)
        .cargo_debug(false)
        .opt_level(2)
        .debug(false)
        .out_dir(std::env::temp_dir())
        .host(&machine)
        .target(&machine)
        .try_get_compiler()
        .map_err(|error| ToolchainError::NoHostCompiler { why: error.to_string() })?;
    // A bare name would be looked up again at each run.
    let path = tool.path();
    let path = if path.is_absolute() { Some(path.to_owned()) } else { find::in_path(path) };
    let path = path.ok_or_else(|| ToolchainError::NoHostCompiler {
        why: format!("`{}` is neither a path nor in PATH", tool.path().display()),
    })?;
    Ok((path, tool.is_like_gnu()))
}

/// What a compiler says of itself: number, machine, the vendor's build, and the linker's.
fn ask(compiler: &Path) -> Result<String, ToolchainError> {
    let ask = |option: &str| {
        let mut command = process::compiler(compiler, Path::new("/"));
        command.env("TMPDIR", std::env::temp_dir()).arg(option);
        let outcome = process::run(command, Duration::from_secs(30)).map_err(|error| {
            ToolchainError::NoHostCompiler { why: format!("`{}` does not run: {error}", compiler.display()) }
        })?;
        let line = outcome.stdout.lines().next().unwrap_or_default().trim().to_owned();
        let answered = outcome.status.success() && !line.is_empty();
        Ok::<_, ToolchainError>(answered.then_some(line))
    };
    let missing = || ToolchainError::NoHostCompiler { why: format!("`{}` tells no version", compiler.display()) };
    // Clang knows only the second; GCC may shorten that one to `12`.
    let number = match ask("-dumpfullversion")? {
        Some(number) => number,
        None => ask("-dumpversion")?.ok_or_else(missing)?,
    };
    let triple = ask("-dumpmachine")?.ok_or_else(missing)?;
    let vendor = ask("--version")?.unwrap_or_default();
    let linker = ask("-Wl,--version")?.unwrap_or_default();
    Ok(format!("{number} {triple} [{vendor}] [{linker}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_family_or_nothing() {
        for gcc in ["g++", "x86_64-linux-gnu-g++-12", "g++-13.2", "aarch64-conda-linux-gnu-g++"] {
            assert_eq!(family(gcc), Some(true), "{gcc}");
        }
        for clang in ["clang++", "clang-14", "clang", "clang++-18"] {
            assert_eq!(family(clang), Some(false), "{clang}");
        }
        for other in ["ccache", "sccache", "c++", "icpx", "distcc", "my-compiler"] {
            assert_eq!(family(other), None, "{other}");
        }
    }

    #[test]
    fn both_ways_find_the_same_compiler() {
        let Some(fast) = Compiler::by_build() else { return };
        let (path, gnu) = search().unwrap();
        assert_eq!((fast.path.canonicalize().unwrap(), fast.gnu), (path.canonicalize().unwrap(), gnu));
        let names: Vec<&str> = fast.parts.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.starts_with(&["driver"]) && names.ends_with(&["as", "ld"]), "{names:?}");
        assert!(!ask(&path).unwrap().is_empty());
    }
}
