//! Triton: kernels in Python, compiled by a child process of a Python that has it, without a GPU.
//!
//! The process sees a private folder with the unit, what it imports and a link to Triton, and an environment that sets
//! no knob of Triton's but those that are spelled as options. Its cubin depends on neither folder nor time, as line
//! tables name files from that folder on. Where a launcher and a kernel must agree, `driver.py` compares what
//! Triton made with what the unit promises, and the parameters are read from the cubin.

mod find;
mod package;

pub use find::find_triton;

use super::folder::{self, Folder, io};
use super::nvrtc::{check_image, supports};
use super::{CompileManifest, Compiled, Kind, Toolchain, ToolchainError, check_planned_by, process};
use crate::layout::Layout;
use package::Package;
use parbake_model::cubin::{self, Parameter};
use parbake_model::identity::Profile;
use parbake_model::op::Options;
use parbake_model::{KeyFields, Language, Target, Toolkit};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What runs Triton.
const DRIVER: &str = include_str!("driver.py");
/// Architectures that Triton compiles for, as far as its assembler knows them; it supports none below 80.
const OLDEST: u16 = 80;

/// How Triton is run.
#[derive(Clone, Debug)]
pub struct TritonSettings {
    /// Where private folders are made: the first that can be written.
    pub scratch: Vec<PathBuf>,
    /// A compilation that takes longer is killed.
    pub limit: Duration,
}

impl Default for TritonSettings {
    fn default() -> Self {
        Self { scratch: vec![std::env::temp_dir()], limit: Duration::from_secs(600) }
    }
}

/// A Triton with the Python that runs it.
#[derive(Debug)]
pub struct Triton {
    package: Package,
    python: PathBuf,
    settings: TritonSettings,
    toolkit: Toolkit,
    archs: Vec<u16>,
    id: String,
}

impl Triton {
    /// Asks the assembler what it is.
    fn of(package: Package, python: PathBuf, settings: TritonSettings) -> Result<Self, ToolchainError> {
        let ptxas = package.ptxas();
        let ask = |option: &str| {
            let mut command = process::compiler(&ptxas, Path::new("/"));
            command.env("TMPDIR", std::env::temp_dir()).arg(option);
            process::run(command, Duration::from_secs(60))
        };
        let version = ask("--version")?.stdout;
        let release = version.split("release ").nth(1).and_then(|rest| rest.split(',').next());
        let toolkit: Option<Toolkit> = release.and_then(|r| r.trim().parse().ok());
        let toolkit = toolkit.ok_or_else(|| ToolchainError::Unusable {
            path: ptxas.clone(),
            why: format!("expected `release MAJOR.MINOR`, got `{}`", version.trim()),
        })?;
        let mut archs: Vec<u16> = known(&ask("--help")?.stdout).into_iter().filter(|a| *a >= OLDEST).collect();
        archs.sort_unstable();
        archs.dedup();
        let key = KeyFields::new("parbake.toolchain.triton.driver.v1")
            .with("package", package.digest)
            .with("ptxas", version.trim())
            .with("driver", DRIVER);
        let id = format!("triton {} {toolkit} {}", package.version, key.finish().digest.short(16));
        Ok(Self { package, python, settings, toolkit, archs, id })
    }

    /// The folder of packages that it lies in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.package.site
    }

    /// Fills the private folder.
    fn prepare(&self, folder: &Path, manifest: &CompileManifest) -> Result<(), ToolchainError> {
        folder::write_unit(folder, &manifest.unit)?;
        folder::write(folder, "driver.py", DRIVER.as_bytes())?;
        let given = serde_json::json!({
            "unit": manifest.unit.name,
            "entry": manifest.unit.entry,
            "arch": manifest.target.arch().map_or(0, |arch| arch.0),
            "options": options(&manifest.options),
            "python": self.package.python,
            "triton": self.package.version,
        });
        folder::write(folder, "manifest.json", given.to_string().as_bytes())?;
        // Nothing else of its environment is on the path: whatever lies there may register itself with Triton.
        let site = folder.join("site");
        std::fs::create_dir(&site).map_err(io("make the folder", &site))?;
        for target in [&self.package.site.join("triton"), &self.package.info] {
            let link = site.join(target.file_name().unwrap_or_default());
            symlink(target, &link).map_err(io("link", &link))?;
        }
        Ok(())
    }

    fn command_in(&self, folder: &Path, manifest: &CompileManifest) -> std::process::Command {
        let mut command = process::compiler(&self.python, folder);
        let ptxas = self.package.ptxas();
        command.args(["-I", "-S", "-B", "driver.py"]);
        command.env("TRITON_HOME", folder).env("TRITON_CACHE_DIR", folder.join("cache"));
        command.env("TRITON_PTXAS_PATH", &ptxas).env("TRITON_PTXAS_BLACKWELL_PATH", &ptxas);
        for option in &manifest.options {
            if let Some(&(_, variable)) = KNOBS.iter().find(|(knob, _)| knob == option) {
                command.env(variable, "1");
            }
        }
        command
    }

    /// What the cubin says of its parameters must be the struct that the launcher fills.
    fn check_parameters(&self, manifest: &CompileManifest, bytes: &[u8]) -> Result<(), ToolchainError> {
        let wrong = |why: String| ToolchainError::Promise { unit: manifest.unit.name.clone(), why };
        let (size, fields) = Layout::in_unit(&manifest.unit.text).ok_or_else(|| wrong("no parameters".to_owned()))?;
        let found = cubin::parameters(bytes, &manifest.unit.entry).map_err(|e| wrong(e.to_string()))?;
        let ends = fields.iter().skip(1).map(|(_, offset)| *offset).chain([size]);
        let fits = |(((name, offset), end), parameter): (((&String, &usize), usize), &Parameter)| {
            let (at, bytes) = (parameter.offset as usize, parameter.size as usize);
            // Padding may follow, and no more than that.
            (at == *offset && at + bytes <= end && end - at - bytes < 8)
                .then_some(())
                .ok_or_else(|| format!("`{name}` at {offset}, and the kernel takes {bytes} bytes at {at}"))
        };
        if found.len() != fields.len() {
            return Err(wrong(format!("{} parameters, and the kernel takes {}", fields.len(), found.len())));
        }
        let named = fields.iter().map(|(name, offset)| (name, offset));
        named.zip(ends).zip(&found).try_for_each(fits).map_err(wrong)
    }
}

/// Options that are variables of Triton's, and not arguments of its compiler.
const KNOBS: [(&str, &str); 3] = [
    ("no-line-info", "TRITON_DISABLE_LINE_INFO"),
    ("no-ptxas-optimisation", "DISABLE_PTXAS_OPT"),
    (VERBOSE, "TRITON_DUMP_PTXAS_LOG"),
];
/// Prints what the assembler says.
pub(super) const VERBOSE: &str = "ptxas-log";
/// The folder stays; its `cache` has every step.
pub(super) const KEEP: &str = "keep-steps";

/// Spelled options as arguments of Triton's compiler.
fn options(spelled: &[String]) -> serde_json::Map<String, serde_json::Value> {
    let pairs = spelled.iter().filter_map(|option| option.split_once('='));
    let value = |text: &str| match text {
        "true" => true.into(),
        "false" => false.into(),
        number => number.parse::<u32>().map_or_else(|_| number.into(), Into::into),
    };
    pairs.map(|(name, text)| (name.to_owned(), value(text))).collect()
}

/// The architectures that an assembler lists.
fn known(help: &str) -> Vec<u16> {
    let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter_map(|word| word.strip_prefix("sm_")?.parse().ok()).collect()
}

impl Toolchain for Triton {
    fn kind(&self) -> Kind {
        Kind::Triton
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn toolkit(&self) -> Option<Toolkit> {
        Some(self.toolkit)
    }

    fn describe(&self) -> String {
        let Package { version, site, .. } = &self.package;
        format!("Triton {version} at {}, run by {}", site.display(), self.python.display())
    }

    fn supports(&self, target: Target) -> Result<(), String> {
        Language::Triton.supports(target)?;
        supports("Triton with the assembler of CUDA", self.toolkit, &self.archs, target)
    }

    fn spell(&self, _target: Target, options: &Options, profile: Profile) -> Vec<String> {
        let mut spelled = vec!["enable_fp_fusion=true".to_owned()];
        spelled.push(format!("enable_reflect_ftz={}", options.fast_math));
        spelled.extend(options.max_registers.map(|n| format!("maxnreg={n}")));
        match profile {
            Profile::Release => spelled.push("no-line-info".into()),
            Profile::Lineinfo => {}
            Profile::Debug => spelled.push("no-ptxas-optimisation".into()),
        }
        spelled
    }

    fn compile(&self, manifest: &CompileManifest) -> Result<Compiled, ToolchainError> {
        check_planned_by(self, manifest)?;
        let started = Instant::now();
        let kept = Folder::new(&self.settings.scratch, manifest)?;
        let folder = kept.path();
        self.prepare(folder, manifest)?;
        let outcome = process::compile(self.command_in(folder, manifest), self.settings.limit)?;
        let (unit, log) = (manifest.unit.name.clone(), kept.log(outcome.log()));
        match outcome.status.code() {
            Some(0) => {}
            Some(2) => return Err(ToolchainError::Promise { unit, why: log }),
            Some(3) => return Err(ToolchainError::Interpreter { path: self.python.clone(), why: log }),
            _ => {
                let (toolchain, target) = (self.id.clone(), manifest.target);
                return Err(ToolchainError::Compile { toolchain, unit, target, log });
            }
        }
        let path = folder.join("kernel.cubin");
        let bytes = std::fs::read(&path).map_err(io("read", &path))?;
        check_image(&self.id, manifest, &bytes)?;
        self.check_parameters(manifest, &bytes)?;
        Ok(Compiled { bytes, log, milliseconds: started.elapsed().as_millis() as u64 })
    }
}
