//! The host target: a unit becomes a shared object that runs its grid on the CPU.
//!
//! The unit, its closure and the shim are written to a private folder under their include names and compiled there by
//! relative names, so the folder's path does not reach the output. The shim's runtime is compiled once per toolchain id
//! and kept as an object file; it is small, and a damaged one is built again.

use super::compiler::Compiler;
use super::folder::{self, Folder, io};
use super::nvrtc::check_image;
use super::process;
use super::{CompileManifest, Compiled, Kind, Toolchain, ToolchainError, Unit, check_planned_by};
use parbake_model::digest::{Digest, KeyFields};
use parbake_model::identity::Profile;
use parbake_model::op::Options;
use parbake_model::{Target, Toolkit};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shim's runtime, by include name.
const RUNTIME: &str = "host/pb_host.cpp";
/// Options of the runtime object. It is never instrumented, whatever the units are.
const RUNTIME_OPTIONS: &[&str] =
    &["-std=c++20", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fstack-clash-protection", "-Wall", "-Wextra"];

/// How the compiler is run. None of it reaches the output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// Where the runtime object is kept for the next process: the first that can be written. It is run: nobody else may
    /// write there.
    pub kept: Vec<PathBuf>,
    /// Where compilations get their private folders: the first that can be written and has room.
    pub scratch: Vec<PathBuf>,
    /// How long one process may run. Units take 0.5 to 2 s.
    pub limit: Duration,
}

impl HostSettings {
    /// Everything in one folder, with the usual limit.
    #[must_use]
    pub fn below(folder: PathBuf) -> Self {
        Self { kept: vec![folder.clone()], scratch: vec![folder], limit: Duration::from_secs(300) }
    }
}

/// The system's C++ compiler with a host shim.
pub struct Host {
    compiler: Compiler,
    shim: BTreeMap<String, String>,
    settings: HostSettings,
    id: String,
    runtime: Mutex<Option<Arc<Vec<u8>>>>,
}

impl Host {
    /// Finds the compiler (`CXX` or the usual names) and takes the shim's texts, by include name. Opening writes
    /// nothing.
    ///
    /// # Errors
    /// If there is no compiler, it does not run, or the shim lacks its runtime.
    pub fn open(shim: BTreeMap<String, String>, settings: HostSettings) -> Result<Arc<Self>, ToolchainError> {
        if !shim.contains_key(RUNTIME) {
            return Err(ToolchainError::Unusable { path: RUNTIME.into(), why: "the shim has no such text".into() });
        }
        for name in shim.keys() {
            folder::check_name(name)?;
        }
        let compiler = Compiler::find()?;
        let mut key = KeyFields::new("parbake.toolchain.host.v2");
        for (part, build) in &compiler.parts {
            key = key.with(part.clone(), build);
        }
        for option in RUNTIME_OPTIONS {
            key = key.with("runtime option", option);
        }
        for (name, text) in &shim {
            key = key.with(format!("shim {name}"), Digest::of(text.as_bytes()));
        }
        let id = format!("host {} {} {}", compiler.name(), std::env::consts::ARCH, key.finish().digest.short(16));
        Ok(Arc::new(Self { compiler, shim, settings, id, runtime: Mutex::new(None) }))
    }

    /// The compiler.
    #[must_use]
    pub fn compiler(&self) -> &Path {
        &self.compiler.path
    }

    /// The runtime object: from memory, from a folder that has it intact, or compiled.
    fn runtime(&self) -> Result<Arc<Vec<u8>>, ToolchainError> {
        // Held while compiling: other threads wait for this object and need it too.
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = &*runtime {
            return Ok(Arc::clone(object));
        }
        let name = format!("pb_host-{}.o", Digest::of(self.id.as_bytes()).short(16));
        let kept = self.settings.kept.iter().find_map(|folder| intact(std::fs::read(folder.join(&name)).ok()?));
        let object = match kept {
            Some(object) => object,
            None => {
                let object = self.compile_runtime()?;
                self.keep(&name, &object);
                object
            }
        };
        Ok(Arc::clone(runtime.insert(Arc::new(object))))
    }

    fn compile_runtime(&self) -> Result<Vec<u8>, ToolchainError> {
        let folder = folder::fresh(&self.settings.scratch)?;
        for (name, text) in &self.shim {
            folder::write(folder.path(), name, text.as_bytes())?;
        }
        let mut command = process::compiler(&self.compiler.path, folder.path());
        command.args(RUNTIME_OPTIONS).args(["-I.", "-c", RUNTIME, "-o", "pb_host.o"]);
        let outcome = process::compile(command, self.settings.limit)?;
        if !outcome.status.success() {
            return Err(self.failed("host/pb_host.cpp", outcome.log()));
        }
        let object = folder.path().join("pb_host.o");
        std::fs::read(&object).map_err(io("read", &object))
    }

    /// Keeps the runtime object for the next process, in the first folder that takes it: digest first, then the bytes,
    /// put in place by a rename. Not being able to is no error.
    fn keep(&self, name: &str, object: &[u8]) {
        let digest = Digest::of(object).0;
        let keep = |folder: &Path| {
            folder::make_for_all(folder)?;
            let file = tempfile::NamedTempFile::new_in(folder)?;
            std::fs::write(file.path(), [&digest, object].concat())?;
            file.persist(folder.join(name)).map(|_| ()).map_err(|e| e.error)
        };
        for folder in &self.settings.kept {
            match keep(folder) {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, folder = %folder.display(), "the host runtime is not kept"),
            }
        }
    }

    fn failed(&self, unit: &str, log: String) -> ToolchainError {
        let toolchain = self.id.clone();
        ToolchainError::Compile { toolchain, unit: unit.to_owned(), target: Target::Host, log }
    }
}

impl Toolchain for Host {
    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn toolkit(&self) -> Option<Toolkit> {
        None
    }

    fn describe(&self) -> String {
        format!("C++ compiler at {}", self.compiler.path.display())
    }

    fn supports(&self, target: Target) -> Result<(), String> {
        match target {
            Target::Host => Ok(()),
            _ => Err(format!("the host toolchain compiles for `host`, not for {target}")),
        }
    }

    fn spell(&self, _target: Target, options: &Options, profile: Profile) -> Vec<String> {
        let (optimise, debug) = match profile {
            Profile::Release => ("-O2", "-g0"),
            Profile::Lineinfo => ("-O2", "-g1"),
            Profile::Debug => ("-O0", "-g"),
        };
        let mut spelled: Vec<String> = ["-std=c++20", optimise, debug, "-fPIC", "-shared", "-fvisibility=hidden"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        if self.compiler.gnu {
            // Unique symbols pin a library in the process and join the static data of two units.
            spelled.push("-fno-gnu-unique".into());
        }
        spelled.extend(
            ["-fstack-clash-protection", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wl,--build-id=none"]
                .map(str::to_owned),
        );
        // What the device's approximate functions may do is looser than what `-ffast-math` does to NaNs: the host
        // computes exactly. Registers are not limited here.
        let _ = options;
        spelled
    }

    fn command(&self, unit: &Unit, _target: Target, options: &[String]) -> Vec<String> {
        let mut command = vec![self.compiler.name().to_owned()];
        command.extend(options.iter().cloned());
        command.extend(arguments(&unit.name));
        command
    }

    fn compile(&self, manifest: &CompileManifest) -> Result<Compiled, ToolchainError> {
        check_planned_by(self, manifest)?;
        let runtime = self.runtime()?;
        let started = Instant::now();
        let folder = Folder::new(&self.settings.scratch, manifest)?;
        for (name, text) in &self.shim {
            folder::write(folder.path(), name, text.as_bytes())?;
        }
        folder::write(folder.path(), "pb_host.o", &runtime)?;
        folder::write_unit(folder.path(), &manifest.unit)?;
        let mut command = process::compiler(&self.compiler.path, folder.path());
        command.args(&manifest.options);
        // Debug information names the folder; this is not part of the key, because it keeps the folder out.
        command.arg(format!("-ffile-prefix-map={}=.", folder.path().display()));
        command.args(arguments(&manifest.unit.name));
        let outcome = process::compile(command, self.settings.limit)?;
        if !outcome.status.success() {
            return Err(self.failed(&manifest.unit.name, folder.log(outcome.log())));
        }
        let output = folder.path().join("unit.so");
        let bytes = std::fs::read(&output).map_err(io("read", &output))?;
        check_image(&self.id, manifest, &bytes)?;
        if self.compiler.was_replaced() {
            let why = "it was replaced since it was found; start the process again".to_owned();
            return Err(ToolchainError::Unusable { path: self.compiler.path.clone(), why });
        }
        Ok(Compiled { bytes, log: folder.log(outcome.log()), milliseconds: started.elapsed().as_millis() as u64 })
    }
}

/// What follows the options. The object must not be read as C++, so the language is reset before it.
fn arguments(unit: &str) -> Vec<String> {
    ["-I.", "-x", "c++", unit, "-x", "none", "pb_host.o", "-lpthread", "-o", "unit.so"].map(str::to_owned).into()
}

/// A kept object whose digest holds.
fn intact(kept: Vec<u8>) -> Option<Vec<u8>> {
    let (digest, object) = kept.split_first_chunk::<32>()?;
    (Digest::of(object).0 == *digest && object.starts_with(b"\x7fELF")).then(|| object.to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    /// A shim that calls the body once per thread of the grid, one after the other.
    fn shim() -> BTreeMap<String, String> {
        let header = "#pragma once\nextern \"C\" int pb_test_run(void (*body)(int, void*), int n, void* p);\n";
        let runtime = "#include \"host/pb_host.h\"\nint pb_test_run(void (*body)(int, void*), int n, void* p) {\n    \
                       for (int i = 0; i < n; i++) body(i, p);\n    return n;\n}\n";
        [("host/pb_host.h", header), ("host/pb_host.cpp", runtime)].map(|(n, t)| (n.into(), t.into())).into()
    }

    fn unit(entry: &str) -> Unit {
        let text = format!(
            "#include \"t/body.cuh\"\nextern \"C\" __attribute__((visibility(\"default\"))) int {entry}(int n, int* p) \
             {{\n    return pb_test_run(body, n, p);\n}}\n"
        );
        let body =
            "#pragma once\n#include \"host/pb_host.h\"\ninline void body(int i, void* p) { ((int*)p)[i] = i * i; }\n";
        testing::unit(entry, &text, &[("t/body.cuh", body)])
    }

    fn compile(host: &Host, profile: Profile) -> Compiled {
        host.compile(&host.plan(unit("square"), Target::Host, &Options::default(), profile)).unwrap()
    }

    #[test]
    fn a_unit_becomes_a_library_that_runs() {
        let scratch = tempfile::tempdir().unwrap();
        let host = Host::open(shim(), HostSettings::below(scratch.path().join("deep/er"))).unwrap();
        assert!(host.id().starts_with("host ") && host.id().split(' ').count() == 4, "{}", host.id());
        let compiled = compile(&host, Profile::Release);
        assert_eq!(compiled.log, "");
        let path = scratch.path().join("square.so");
        std::fs::write(&path, &compiled.bytes).unwrap();
        let mut out = [0; 5];
        // SAFETY: the library was compiled above; the entry has this type and writes `n` integers.
        let n = unsafe {
            let library = libloading::Library::new(&path).unwrap();
            let entry = library.get::<unsafe extern "C" fn(i32, *mut i32) -> i32>("square").unwrap();
            entry(5, out.as_mut_ptr())
        };
        assert_eq!((n, out), (5, [0, 1, 4, 9, 16]));
    }

    #[test]
    fn bytes_do_not_depend_on_the_folder() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep = b.path().join("another/folder/with a space");
        let (first, second) = (
            Host::open(shim(), HostSettings::below(a.path().into())).unwrap(),
            Host::open(shim(), HostSettings::below(deep)).unwrap(),
        );
        assert_eq!(first.id(), second.id());
        for profile in [Profile::Release, Profile::Lineinfo, Profile::Debug] {
            assert!(compile(&first, profile).bytes == compile(&second, profile).bytes, "{profile}");
        }
    }

    #[test]
    fn the_runtime_is_kept_and_rebuilt_when_damaged() {
        let scratch = tempfile::tempdir().unwrap();
        let open = || Host::open(shim(), HostSettings::below(scratch.path().into())).unwrap();
        let object = open().runtime().unwrap();
        let kept: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().map(|e| e.path()).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        let good = std::fs::read(&kept[0]).unwrap();
        std::fs::write(&kept[0], &good[..good.len() / 2]).unwrap();
        assert_eq!(open().runtime().unwrap(), object);
        assert_eq!(std::fs::read(&kept[0]).unwrap(), good);
    }

    #[test]
    fn the_shim_is_part_of_the_id() {
        let mut other = shim();
        other.get_mut(RUNTIME).unwrap().push_str("// changed\n");
        let scratch = tempfile::tempdir().unwrap();
        let id = |shim| Host::open(shim, HostSettings::below(scratch.path().into())).unwrap().id().to_owned();
        assert_ne!(id(shim()), id(other));
        assert!(Host::open(BTreeMap::new(), HostSettings::below(scratch.path().into())).is_err());
    }

    #[test]
    fn errors_and_targets() {
        let scratch = tempfile::tempdir().unwrap();
        let host = Host::open(shim(), HostSettings::below(scratch.path().into())).unwrap();
        let bad = testing::unit("bad", "\nint f() { return nope; }\n", &[]);
        let plan = host.plan(bad, Target::Host, &Options::default(), Profile::Release);
        let error = host.compile(&plan).unwrap_err();
        assert_eq!(error.code(), "PB-1509");
        assert!(error.to_string().contains("bad.cu:2:"), "{error}");
        assert!(host.supports("sm_80".parse().unwrap()).unwrap_err().contains("sm_80"));
        let mut plan = host.plan(unit("k"), Target::Host, &Options::default(), Profile::Release);
        plan.unit.name = "../k.cu".into();
        assert_eq!(host.compile(&plan).unwrap_err().code(), "PB-1507");
    }
}
