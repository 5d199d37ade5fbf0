//! nvcc: a CUDA toolkit's compiler driver, as child processes.
//!
//! Thin on purpose: it writes the unit and its closure to a private folder, runs the driver there with an environment
//! that adds no options, and takes the output. It needs a host compiler even for a cubin, so that one is in the id.
//!
//! Release output does not depend on the folder as long as the unit has no variables with internal linkage, whose names
//! get a hash of the absolute path. Line tables and debug information name the private folder and are never
//! reproducible; NVRTC has neither weakness.

use super::build_id::build_id;
use super::compiler::Compiler;
use super::folder::{self, Folder, io};
use super::nvrtc::{check_image, supports};
use super::{CompileManifest, Compiled, Kind, Toolchain, ToolchainError, Unit, check_planned_by, process};
use parbake_model::digest::{Digest, KeyFields};
use parbake_model::identity::Profile;
use parbake_model::op::Options;
use parbake_model::{Target, Toolkit};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How nvcc is run.
#[derive(Clone, Debug)]
pub struct NvccSettings {
    /// A program that runs the compiler, such as `sccache`: the value of `PARBAKE_NVCC_LAUNCHER`. If it starts a server
    /// of its own, that should run before: here it would inherit a temporary folder that goes away.
    pub launcher: Option<PathBuf>,
    /// Where private folders are made.
    pub scratch: PathBuf,
    /// A compilation that takes longer is killed.
    pub limit: Duration,
}

impl Default for NvccSettings {
    fn default() -> Self {
        Self { launcher: None, scratch: std::env::temp_dir(), limit: Duration::from_secs(600) }
    }
}

/// An nvcc with the toolkit around it.
#[derive(Debug)]
pub struct Nvcc {
    path: PathBuf,
    host: PathBuf,
    settings: NvccSettings,
    toolkit: Toolkit,
    archs: Vec<u16>,
    id: String,
}

impl Nvcc {
    /// Asks an nvcc what it is. Hashes the compiler and its header tree, which takes a moment.
    ///
    /// # Errors
    /// If it or the host compiler does not run, or parts of the toolkit are missing.
    pub fn open(path: &Path, settings: NvccSettings) -> Result<Self, ToolchainError> {
        let path = path.canonicalize().map_err(io("find", path))?;
        let unusable = |why: String| ToolchainError::Unusable { path: path.clone(), why };
        let root = path.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let ask = |program: &Path, option: &str| {
            let mut command = process::compiler(program, Path::new("/"));
            command.env("TMPDIR", std::env::temp_dir()).arg(option);
            let outcome = process::run(command, Duration::from_secs(60))?;
            match outcome.status.success() {
                true => Ok(outcome.stdout),
                false => Err(unusable(format!("`{} {option}`: {}", program.display(), outcome.log()))),
            }
        };
        let version = ask(&path, "--version")?;
        let release = version.split("release ").nth(1).and_then(|rest| rest.split(',').next());
        let toolkit: Option<Toolkit> = release.and_then(|r| r.trim().parse().ok());
        let toolkit = toolkit.ok_or_else(|| unusable(format!("expected `release MAJOR.MINOR`, got `{version}`")))?;
        let patch = version
            .split_whitespace()
            .find(|word| word.strip_prefix('V').is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit())));
        let codes = ask(&path, "--list-gpu-code")?;
        let archs = codes.split_whitespace().filter_map(|word| word.strip_prefix("sm_")?.parse().ok()).collect();

        let host = Compiler::find()?;
        let mut key = KeyFields::new("parbake.toolchain.nvcc.v1")
            .with("nvcc", version.trim())
            .with("ptxas", ask(&path.with_file_name("ptxas"), "--version")?.trim());
        for (part, build) in &host.parts {
            key = key.with(format!("host compiler {part}"), build);
        }
        // These two have no version to ask for, and wheels of several versions may lie in one folder.
        for part in ["nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc"] {
            let part = root.join(part);
            key = key.with("part", build_id(&part).map_err(io("read", &part))?);
        }
        for folder in ["include", "bin/crt"] {
            key = key.with(folder, tree_digest(&root.join(folder))?);
        }
        let id = format!("nvcc {toolkit} {} {}", patch.unwrap_or("V?"), key.finish().digest.short(16));
        Ok(Self { path, host: host.path, settings, toolkit, archs, id })
    }

    /// The driver's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Toolchain for Nvcc {
    fn kind(&self) -> Kind {
        Kind::Nvcc
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn toolkit(&self) -> Option<Toolkit> {
        Some(self.toolkit)
    }

    fn describe(&self) -> String {
        let launcher = self.settings.launcher.as_ref().map(|l| format!(" through {}", l.display()));
        format!(
            "nvcc {} at {}{}, host compiler {}",
            self.toolkit,
            self.path.display(),
            launcher.unwrap_or_default(),
            self.host.display()
        )
    }

    fn supports(&self, target: Target) -> Result<(), String> {
        supports("nvcc", self.toolkit, &self.archs, target)
    }

    fn spell(&self, target: Target, options: &Options, profile: Profile) -> Vec<String> {
        let form = if matches!(target, Target::Compute(..)) { "-ptx" } else { "-cubin" };
        let mut spelled = vec![form.to_owned(), format!("-arch={target}"), "-std=c++17".into()];
        if options.fast_math {
            spelled.push("-use_fast_math".into());
        }
        if let Some(registers) = options.max_registers {
            spelled.push(format!("-maxrregcount={registers}"));
        }
        match profile {
            Profile::Release => {}
            Profile::Lineinfo => spelled.push("-lineinfo".into()),
            Profile::Debug => spelled.push("-G".into()),
        }
        spelled
    }

    fn command(&self, unit: &Unit, target: Target, options: &[String]) -> Vec<String> {
        let mut command = vec!["nvcc".to_owned()];
        command.extend(options.iter().cloned());
        command.extend(["-I.", "-o", output(target), &unit.name].map(str::to_owned));
        command
    }

    fn compile(&self, manifest: &CompileManifest) -> Result<Compiled, ToolchainError> {
        check_planned_by(self, manifest)?;
        let started = Instant::now();
        let kept = Folder::new(std::slice::from_ref(&self.settings.scratch), manifest)?;
        let folder = kept.path();
        folder::write_unit(folder, &manifest.unit)?;
        let mut command = match &self.settings.launcher {
            None => process::compiler(&self.path, folder),
            Some(launcher) => {
                let mut command = process::compiler(launcher, folder);
                command.arg(&self.path);
                command
            }
        };
        command.args(&manifest.options).arg("-ccbin").arg(&self.host);
        // Names of line tables hold a process id unless a seed is given; this one follows from the key.
        command.arg(format!("-frandom-seed={}", Digest::of(manifest.unit.text.as_bytes()).short(16)));
        let output = output(manifest.target);
        command.args(["-I.", "-o", output, &manifest.unit.name]);
        let outcome = process::compile(command, self.settings.limit)?;
        if !outcome.status.success() {
            let (toolchain, unit, target) = (self.id.clone(), manifest.unit.name.clone(), manifest.target);
            return Err(ToolchainError::Compile { toolchain, unit, target, log: kept.log(outcome.log()) });
        }
        let path = folder.join(output);
        let bytes = std::fs::read(&path).map_err(io("read", &path))?;
        check_image(&self.id, manifest, &bytes)?;
        Ok(Compiled { bytes, log: kept.log(outcome.log()), milliseconds: started.elapsed().as_millis() as u64 })
    }
}

fn output(target: Target) -> &'static str {
    if matches!(target, Target::Compute(..)) { "unit.ptx" } else { "unit.cubin" }
}

/// Digest over relative names and contents of a tree; one that is not there has the digest of nothing.
fn tree_digest(root: &Path) -> Result<Digest, ToolchainError> {
    let mut key = KeyFields::new("parbake.tree.v1");
    let mut folders = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    for path in files {
        let text = std::fs::read(&path).map_err(io("read", &path))?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        key = key.with(name, Digest::of(&text));
    }
    Ok(key.finish().digest)
}

#[cfg(test)]
mod tests {
    use super::super::{find, testing};
    use super::*;

    fn nvcc(settings: NvccSettings) -> Option<Nvcc> {
        let path = testing::toolchains().join("nvcc-13.0/nvidia/cu13/bin/nvcc");
        if !path.is_file() {
            testing::skipped("nvcc-13.0", "13.0 --with-nvcc");
            return None;
        }
        Some(Nvcc::open(&path, settings).unwrap())
    }

    #[test]
    fn cubins_ptx_and_errors() {
        let Some(nvcc) = nvcc(NvccSettings::default()) else { return };
        assert!(nvcc.id().starts_with("nvcc 13.0 V13.0."), "{}", nvcc.id());
        let plan = |unit, target: &str, profile| nvcc.plan(unit, target.parse().unwrap(), &Options::default(), profile);
        let compile = |target, profile| nvcc.compile(&plan(testing::scale_unit("k"), target, profile)).unwrap().bytes;
        assert_eq!(compile("sm_90a", Profile::Release), compile("sm_90a", Profile::Release));
        assert!(String::from_utf8(compile("compute_90", Profile::Release)).unwrap().contains(".entry k("));

        let bad = testing::unit("bad", "\n__global__ void bad() { nope(); }\n", &[]);
        let error = nvcc.compile(&plan(bad, "sm_80", Profile::Release)).unwrap_err();
        assert_eq!((error.code(), error.to_string().contains("bad.cu(2)")), ("PB-1509", true), "{error}");
        assert!(nvcc.supports("sm_110".parse().unwrap()).is_ok());
        assert!(nvcc.supports(Target::Host).is_err());

        let search = find::Search {
            explicit: None,
            toolchains: testing::toolchains(),
            want: None,
            driver: "12.8".parse().ok(),
            target: "sm_90a".parse().unwrap(),
        };
        let error = find::find_nvcc(&search).unwrap_err();
        assert!(error.report().to_string().contains("the driver supports up to 12.8"));
    }

    #[test]
    fn a_launcher_runs_and_a_hanging_one_is_killed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let mark = folder.path().join("mark");
        let runs = script("runs", &format!("#!/bin/sh\necho \"$1\" > {}\nexec \"$@\"\n", mark.display()));
        let hangs = script("hangs", "#!/bin/sh\nsleep 100\n");
        let lies = script("lies", "#!/bin/sh\nexit 0\n");
        let run = |launcher: &Path, limit| {
            let settings = NvccSettings { launcher: Some(launcher.to_owned()), limit, ..NvccSettings::default() };
            let nvcc = nvcc(settings)?;
            let target = "sm_90a".parse().unwrap();
            let plan = nvcc.plan(testing::scale_unit("k"), target, &Options::default(), Profile::Release);
            Some(nvcc.compile(&plan))
        };
        let Some(compiled) = run(&runs, Duration::from_secs(60)) else { return };
        assert!(compiled.unwrap().bytes.starts_with(b"\x7fELF"));
        assert!(std::fs::read_to_string(mark).unwrap().trim_end().ends_with("/nvcc"));
        assert_eq!(run(&hangs, Duration::from_millis(300)).unwrap().unwrap_err().code(), "PB-1514");
        assert_eq!(run(&lies, Duration::from_secs(60)).unwrap().unwrap_err().code(), "PB-1516");
    }
}
