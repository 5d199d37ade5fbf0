//! Toolchains: what turns a rendered unit into the bytes of an image.
//!
//! | kind | compiler | for |
//! |---|---|---|
//! | `nvrtc` | NVIDIA's run-time compiler, in this process | bundles and compilation on demand |
//! | `nvcc` | a CUDA toolkit's driver, as child processes | who must have it |
//! | `host` | the system's C++ compiler | the host target |
//! | `triton` | Triton, run by a Python that has it | kernels that are written in it |
//!
//! The compiler sees only what is in the key: the unit, its closure and the spelled options. A toolchain's id says
//! everything else that shapes the output. [`Nvfatbin`] wraps finished cubins; [`find_nvrtc`] and its siblings look
//! compilers up; [`install`](install::install) fetches pinned ones.

mod build_id;
mod compiler;
pub mod components;
pub mod diagnosis;
mod error;
pub mod find;
mod folder;
pub mod host;
pub mod install;
pub mod memory;
pub mod nvcc;
pub mod nvfatbin;
pub mod nvrtc;
pub mod process;
pub mod site;
#[cfg(test)]
pub(crate) mod testing;
pub mod triton;

pub use components::Component;
pub use diagnosis::{Diagnosing, Diagnosis};
pub use error::ToolchainError;
pub use find::{NotFound, Search, find_nvcc, find_nvfatbin, find_nvrtc};
pub use host::{Host, HostSettings};
pub use install::{InstallError, Installed};
pub use nvcc::{Nvcc, NvccSettings};
pub use nvfatbin::Nvfatbin;
pub use nvrtc::Nvrtc;
pub use triton::{Triton, TritonSettings, find_triton};

use parbake_model::identity::Profile;
use parbake_model::op::Options;
use parbake_model::source::Closure;
use parbake_model::{Target, Toolkit};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which compiler a toolchain drives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// NVIDIA's run-time compiler.
    Nvrtc,
    /// A CUDA toolkit's compiler driver.
    Nvcc,
    /// The system's C++ compiler.
    Host,
    /// Triton.
    Triton,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvrtc => "nvrtc",
            Self::Nvcc => "nvcc",
            Self::Host => "host",
            Self::Triton => "triton",
        })
    }
}

/// What a compiler is given: everything in it is in the key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Fixed virtual file name, `<uri>.cu` or `<uri>.py`: the only name that reaches the output.
    pub name: String,
    /// The rendered text.
    pub text: String,
    /// The kernel's `extern "C"` name.
    pub entry: String,
    /// Every file that the text includes or imports, by include name.
    #[serde(with = "closure")]
    pub closure: Closure,
}

/// One compilation, complete enough to be repeated elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompileManifest {
    /// The sources.
    pub unit: Unit,
    /// What it is compiled for.
    pub target: Target,
    /// The options as this toolchain spells them.
    pub options: Vec<String>,
    /// The toolchain's id.
    pub toolchain: String,
    /// The profile.
    pub profile: Profile,
    /// What a person would type in a folder that holds the unit and its closure.
    pub command: Vec<String>,
}

/// What a compiler gave back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// A cubin, PTX text without a terminator, or a shared object.
    pub bytes: Vec<u8>,
    /// What the compiler said, warnings included; empty if nothing.
    pub log: String,
    /// How long it took.
    pub milliseconds: u64,
}

/// A compiler with everything that shapes its output pinned down.
pub trait Toolchain: Send + Sync {
    /// Which compiler this is.
    fn kind(&self) -> Kind;

    /// Kind, version and a digest of what the version does not say; part of every build key.
    fn id(&self) -> &str;

    /// The CUDA version; the host toolchain has none.
    fn toolkit(&self) -> Option<Toolkit>;

    /// Where it was found.
    fn describe(&self) -> String;

    /// Whether it compiles for a target.
    ///
    /// # Errors
    /// The reason why it does not, naming compiler and target.
    fn supports(&self, target: Target) -> Result<(), String>;

    /// Semantic options as this compiler spells them. No path is among them.
    fn spell(&self, target: Target, options: &Options, profile: Profile) -> Vec<String>;

    /// The command line for a person to repeat the compilation by hand.
    fn command(&self, unit: &Unit, _target: Target, options: &[String]) -> Vec<String> {
        let mut command = vec![self.kind().to_string()];
        command.extend(options.iter().cloned());
        command.push(unit.name.clone());
        command
    }

    /// Everything about a compilation, before it is run.
    fn plan(&self, unit: Unit, target: Target, options: &Options, profile: Profile) -> CompileManifest {
        let options = self.spell(target, options, profile);
        let command = self.command(&unit, target, &options);
        CompileManifest { unit, target, options, toolchain: self.id().to_owned(), profile, command }
    }

    /// Runs a compilation. May be called from several threads at once.
    ///
    /// # Errors
    /// A manifest of another toolchain, a target that this one does not know, or what the compiler said.
    fn compile(&self, manifest: &CompileManifest) -> Result<Compiled, ToolchainError>;
}

/// A manifest is run by the toolchain that planned it, or not at all: its key names that one.
fn check_planned_by(toolchain: &dyn Toolchain, manifest: &CompileManifest) -> Result<(), ToolchainError> {
    if manifest.toolchain != toolchain.id() {
        return Err(ToolchainError::Foreign { planned: manifest.toolchain.clone(), here: toolchain.id().to_owned() });
    }
    toolchain
        .supports(manifest.target)
        .map_err(|reason| ToolchainError::Unsupported { target: manifest.target, reason })
}

/// The closure's two maps; the model does not serialise it, because only manifests need that.
mod closure {
    use parbake_model::source::Closure;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Header<'a> {
        path: Cow<'a, str>,
        text: Cow<'a, str>,
    }

    pub(super) fn serialize<S: Serializer>(closure: &Closure, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(closure.headers.iter().map(|(name, text)| {
            let path = closure.paths.get(name).map_or("", String::as_str);
            (name, Header { path: path.into(), text: text.into() })
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Closure, D::Error> {
        let mut closure = Closure::default();
        for (name, header) in BTreeMap::<String, Header<'_>>::deserialize(deserializer)? {
            if !header.path.is_empty() {
                closure.paths.insert(name.clone(), header.path.into_owned());
            }
            closure.headers.insert(name, header.text.into_owned());
        }
        Ok(closure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_survive_a_trip_through_json() {
        let unit = testing::unit("trip", "#include \"a/b.cuh\"\n", &[("a/b.cuh", "#pragma once\n")]);
        let manifest = CompileManifest {
            unit,
            target: "sm_90a".parse().unwrap(),
            options: vec!["--std=c++17".into()],
            toolchain: "nvrtc 13.0 0123456789abcdef".into(),
            profile: Profile::Lineinfo,
            command: vec!["nvrtc".into()],
        };
        let text = serde_json::to_string(&manifest).unwrap();
        assert!(
            text.contains(r##""closure":{"a/b.cuh":{"path":"include/a/b.cuh","text":"#pragma once\n"}}"##),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<CompileManifest>(&text).unwrap(), manifest);
        // A field that we do not know may change what is compiled.
        for place in ["{\"unit\":", "{\"name\":", "{\"path\":"] {
            assert!(text.contains(place), "{place}");
            let later = text.replacen(place, &place.replace('{', "{\"later\":1,"), 1);
            assert!(serde_json::from_str::<CompileManifest>(&later).unwrap_err().to_string().contains("later"));
        }
    }
}
