//! A toolchain that tells more. What it is asked for is an option like any other, so the build key is another one, and
//! no artifact that was made without it is touched or served in its place.

use super::{CompileManifest, Compiled, Kind, Toolchain, ToolchainError, Unit, triton};
use parbake_model::identity::Profile;
use parbake_model::op::Options;
use parbake_model::{Target, Toolkit};
use std::sync::Arc;

/// What to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Diagnosis {
    /// What the compiler says about registers, spills and its own steps, in the log of the artifact.
    pub verbose: bool,
    /// The private folder of a compilation with the intermediate files stays. NVRTC has none: it compiles in memory,
    /// and what it is given lies among the generated sources.
    pub keep: bool,
}

impl Diagnosis {
    /// The options that ask a compiler for it.
    fn options(self, kind: Kind) -> Vec<String> {
        let keep = match kind {
            Kind::Nvrtc => None,
            Kind::Nvcc => Some(KEEP_NVCC),
            Kind::Host => Some(KEEP_HOST),
            Kind::Triton => Some(triton::KEEP),
        };
        let verbose = self.verbose.then(|| verbose(kind));
        verbose.into_iter().chain(keep.filter(|_| self.keep)).map(str::to_owned).collect()
    }
}

/// The option by which a compiler tells registers, spills and its own steps.
pub(crate) fn verbose(kind: Kind) -> &'static str {
    match kind {
        Kind::Nvrtc => "--ptxas-options=-v",
        Kind::Nvcc => "-Xptxas=-v",
        Kind::Host => "-v",
        Kind::Triton => triton::VERBOSE,
    }
}

const KEEP_NVCC: &str = "--keep";
const KEEP_HOST: &str = "-save-temps";

/// Whether the options of a compilation ask for its intermediate files.
pub(super) fn keeps(manifest: &CompileManifest) -> bool {
    manifest.options.iter().any(|option| [KEEP_NVCC, KEEP_HOST, triton::KEEP].contains(&option.as_str()))
}

/// A toolchain under diagnosis.
pub struct Diagnosing {
    toolchain: Arc<dyn Toolchain>,
    diagnosis: Diagnosis,
}

impl Diagnosing {
    /// The toolchain itself if nothing is to be told.
    #[must_use]
    pub fn of(toolchain: Arc<dyn Toolchain>, diagnosis: Diagnosis) -> Arc<dyn Toolchain> {
        if diagnosis == Diagnosis::default() { toolchain } else { Arc::new(Self { toolchain, diagnosis }) }
    }
}

impl Toolchain for Diagnosing {
    fn kind(&self) -> Kind {
        self.toolchain.kind()
    }

    fn id(&self) -> &str {
        self.toolchain.id()
    }

    fn toolkit(&self) -> Option<Toolkit> {
        self.toolchain.toolkit()
    }

    fn describe(&self) -> String {
        self.toolchain.describe()
    }

    fn supports(&self, target: Target) -> Result<(), String> {
        self.toolchain.supports(target)
    }

    fn spell(&self, target: Target, options: &Options, profile: Profile) -> Vec<String> {
        let mut spelled = self.toolchain.spell(target, options, profile);
        spelled.extend(self.diagnosis.options(self.kind()));
        spelled
    }

    fn command(&self, unit: &Unit, target: Target, options: &[String]) -> Vec<String> {
        self.toolchain.command(unit, target, options)
    }

    fn compile(&self, manifest: &CompileManifest) -> Result<Compiled, ToolchainError> {
        self.toolchain.compile(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Host, HostSettings, testing};
    use super::*;

    #[test]
    fn what_is_told_is_an_option_of_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let shim = [("host/pb_host.h", ""), ("host/pb_host.cpp", "int pb_host_there;\n")];
        let shim = shim.map(|(n, t)| (n.to_owned(), t.to_owned())).into();
        let host: Arc<dyn Toolchain> = Host::open(shim, HostSettings::below(scratch.path().to_owned())).unwrap();
        let of = |verbose, keep| Diagnosing::of(host.clone(), Diagnosis { verbose, keep });
        let unit = |text: &str| {
            testing::unit(
                "k",
                &format!("extern \"C\" __attribute__((visibility(\"default\"))) int k() {{ {text} }}\n"),
                &[],
            )
        };
        let plan = |toolchain: &dyn Toolchain, text| {
            toolchain.plan(unit(text), Target::Host, &Options::default(), Profile::Release)
        };
        let plain = plan(&*of(false, false), "return 1;");
        let told = of(true, true);
        let manifest = plan(&*told, "return 1;");
        assert_eq!(manifest.options[..plain.options.len()], plain.options);
        assert_eq!(manifest.options[plain.options.len()..], ["-v", "-save-temps"]);
        assert!(manifest.command.contains(&"-save-temps".to_owned()) && manifest.toolchain == plain.toolchain);

        let kept = || {
            let names = std::fs::read_dir(scratch.path()).unwrap().map(|e| e.unwrap().path());
            names
                .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("parbake-kept-k-"))
                .collect::<Vec<_>>()
        };
        assert!(host.compile(&plain).unwrap().log.is_empty() && kept().is_empty());
        let compiled = told.compile(&manifest).unwrap();
        let folder = kept().remove(0);
        assert!(compiled.log.contains("COLLECT_GCC") || compiled.log.contains("clang version"), "{}", compiled.log);
        assert!(compiled.log.contains(&format!("kept: {}", folder.display())), "{}", compiled.log);
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        let has = |end: &str| names.iter().any(|n| n.to_string_lossy().ends_with(end));
        assert!(has("k.cu") && has(".s") && has("unit.so"), "{names:?}");

        // What does not compile is what one wants to look at most.
        let error = told.compile(&plan(&*told, "return nope;")).unwrap_err().to_string();
        assert!(error.contains("kept: ") && kept().len() == 2, "{error}");
    }

    #[test]
    fn nvrtc_tells_registers() {
        for toolkit in ["12.9", "13.0", "13.5"] {
            let Some((nvrtc, _)) = testing::cuda(toolkit) else { continue };
            let told = Diagnosing::of(nvrtc, Diagnosis { verbose: true, keep: true });
            let target = "sm_90a".parse().unwrap();
            let manifest = told.plan(testing::scale_unit("k"), target, &Options::default(), Profile::Release);
            assert_eq!(manifest.options.last().map(String::as_str), Some("--ptxas-options=-v"));
            let log = told.compile(&manifest).unwrap().log;
            assert!(log.contains("registers") && log.contains("'k'"), "{toolkit}: {log}");
        }
    }
}
