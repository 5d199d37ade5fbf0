//! NVRTC: NVIDIA's run-time compiler, in this process, through our own function table.
//!
//! Headers are texts in memory and `--no-source-include` keeps the current folder out, so the compiler reads no file
//! but its own builtins. The same unit gives the same bytes whatever the folder, the process or the thread.

use super::build_id::{BuildId, build_id};
use super::folder::{check_name, io};
use super::{CompileManifest, Compiled, Kind, Toolchain, ToolchainError, check_planned_by};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use parbake_model::digest::KeyFields;
use parbake_model::identity::Profile;
use parbake_model::op::Options;
use parbake_model::target::Suffix;
use parbake_model::{Target, Toolkit};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Deep templates overflow the stacks that threads of other programs have.
const STACK: usize = 16 << 20;
/// Variables that change what NVRTC makes or writes, as was seen with 12.9, 13.0 and 13.5. They cannot be cleared in a
/// running process without a race, so they are refused.
const REFUSED: &[&str] = &[
    "NVRTC_APPEND_FLAGS",
    "NVRTC_PREPEND_FLAGS",
    // 13.5 writes other bytes; a file of that name; all of them fail.
    "FINALIZER_USE_LEGACY_ELF_BUILDER",
    "FINALIZER_CUBIE",
    "NV_NVVM_VERSION",
];

type Program = *mut c_void;

/// Declares a table of C functions that return a plain result code. Codes stay integers: a newer library may return
/// ones that we have no name for.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: fn($($argument:ty),*) -> $result:ty = $symbol:literal;)* }) => {
        $(#[$doc])*
        struct $name { $($field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl $name {
            fn load(library: &Library, path: &Path) -> Result<Self, ToolchainError> {
                Ok(Self { $($field: {
                    // SAFETY: the type is that of the library's header, and the library is never closed.
                    let symbol = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol.as_bytes())
                    };
                    *symbol.map_err(|_| ToolchainError::Symbol { path: path.to_owned(), name: $symbol })?
                },)* })
            }
        }
    };
}
pub(super) use table;

table! {
    /// The functions in use.
    Table {
        version: fn(*mut c_int, *mut c_int) -> c_int = "nvrtcVersion";
        archs_count: fn(*mut c_int) -> c_int = "nvrtcGetNumSupportedArchs";
        archs: fn(*mut c_int) -> c_int = "nvrtcGetSupportedArchs";
        error_text: fn(c_int) -> *const c_char = "nvrtcGetErrorString";
        create: fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char)
            -> c_int = "nvrtcCreateProgram";
        destroy: fn(*mut Program) -> c_int = "nvrtcDestroyProgram";
        compile: fn(Program, c_int, *const *const c_char) -> c_int = "nvrtcCompileProgram";
        log_size: fn(Program, *mut usize) -> c_int = "nvrtcGetProgramLogSize";
        log: fn(Program, *mut c_char) -> c_int = "nvrtcGetProgramLog";
        cubin_size: fn(Program, *mut usize) -> c_int = "nvrtcGetCUBINSize";
        cubin: fn(Program, *mut c_char) -> c_int = "nvrtcGetCUBIN";
        ptx_size: fn(Program, *mut usize) -> c_int = "nvrtcGetPTXSize";
        ptx: fn(Program, *mut c_char) -> c_int = "nvrtcGetPTX";
    }
}

/// An NVRTC. Its id and version come from the files' names and ELF notes; the library itself, 100 MB of it, is loaded at
/// the first compilation and never unloaded. So whoever finds everything in the store pays for two small reads.
pub struct Nvrtc {
    path: PathBuf,
    builtins: PathBuf,
    /// Which builds these two files were when the id was made of them.
    builds: [BuildId; 2],
    toolkit: Toolkit,
    id: String,
    /// Whether somebody else had loaded it before.
    foreign: bool,
    loaded: Mutex<Option<Arc<Loaded>>>,
}

/// What is known once the library is in the process.
struct Loaded {
    table: Table,
    toolkit: Toolkit,
    archs: Vec<u16>,
}

/// What was opened in this process, by canonical path.
static OPENED: Mutex<BTreeMap<PathBuf, Arc<Nvrtc>>> = Mutex::new(BTreeMap::new());

impl Nvrtc {
    /// Identifies a library, or gives the one that was opened from that path before. Loads it only if its files do not
    /// say what it is.
    ///
    /// # Errors
    /// If the library or its builtins cannot be read, or are older than CUDA 12.0.
    pub fn open(path: &Path) -> Result<Arc<Self>, ToolchainError> {
        let canonical = path.canonicalize().map_err(io("find", path))?;
        // Held while identifying: of two threads that open the same library one waits and gets the other's.
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nvrtc) = opened.get(&canonical) {
            return Ok(Arc::clone(nvrtc));
        }
        let nvrtc = Arc::new(Self::identify(path, canonical.clone())?);
        opened.insert(canonical, Arc::clone(&nvrtc));
        Ok(nvrtc)
    }

    /// The library's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn identify(path: &Path, canonical: PathBuf) -> Result<Self, ToolchainError> {
        let unusable = |why: String| ToolchainError::Unusable { path: path.to_owned(), why };
        let builtins = builtins(&canonical).ok_or_else(|| {
            unusable(format!("expected `libnvrtc-builtins.so.*` beside it in `{}`", parent(&canonical).display()))
        })?;
        let foreign = super::find::mapped("libnvrtc.so").contains(&canonical);
        let builds = builds(&canonical, &builtins)?;
        let [library_id, builtins_id] = &builds;
        let named = builtins_version(&builtins).filter(|_| library_id.is_elf() && builtins_id.is_elf());
        // A file that does not say what it is must be asked.
        let loaded = if named.is_none() { Some(Arc::new(Loaded::load(path, &canonical, &builtins)?)) } else { None };
        let toolkit = named.or(loaded.as_ref().map(|l| l.toolkit)).expect("bug: neither named nor loaded");
        if toolkit.major < 12 {
            return Err(unusable(format!("expected CUDA 12.0 or newer, got {toolkit}")));
        }
        let key = KeyFields::new("parbake.toolchain.nvrtc.v1")
            .with("library", library_id.to_string())
            .with("builtins", builtins_id.to_string())
            .finish();
        let id = format!("nvrtc {toolkit} {}", key.digest.short(16));
        tracing::debug!(path = %canonical.display(), id, "NVRTC found");
        Ok(Self { path: canonical, builtins, builds, toolkit, id, foreign, loaded: Mutex::new(loaded) })
    }

    /// The library in this process; its own word on its version must be that of its files.
    fn loaded(&self) -> Result<Arc<Loaded>, ToolchainError> {
        // Held while loading: other threads wait for this library and need it too.
        let mut slot = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*slot {
            return Ok(Arc::clone(loaded));
        }
        let loaded = Loaded::load(&self.path, &self.path, &self.builtins)?;
        if loaded.toolkit != self.toolkit {
            let why = format!("it says that it is CUDA {}, its builtins are of {}", loaded.toolkit, self.toolkit);
            return Err(ToolchainError::Unusable { path: self.path.clone(), why });
        }
        // An upgrade in between would put another compiler's work under this id.
        if builds(&self.path, &self.builtins)? != self.builds {
            let why = "it was replaced since it was found; start the process again".to_owned();
            return Err(ToolchainError::Unusable { path: self.path.clone(), why });
        }
        tracing::debug!(path = %self.path.display(), id = self.id, "NVRTC loaded");
        Ok(Arc::clone(slot.insert(Arc::new(loaded))))
    }

    /// The architectures that the library lists, if it is loaded.
    fn archs(&self) -> Option<Vec<u16>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|l| l.archs.clone())
    }
}

impl Loaded {
    fn load(path: &Path, canonical: &Path, builtins: &Path) -> Result<Self, ToolchainError> {
        let unusable = |why: String| ToolchainError::Unusable { path: path.to_owned(), why };
        // The compiler opens its builtins by bare name at the first compilation; by then they must be in the process.
        load_for_good(builtins)?;
        let library = load_for_good(canonical)?;
        let table = Table::load(library, canonical)?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: both calls write one or two integers and nothing else.
        let codes = unsafe { [(table.version)(&raw mut major, &raw mut minor), (table.archs_count)(&raw mut count)] };
        if codes != [0, 0] || !(0..1000).contains(&count) {
            return Err(unusable(format!("it does not tell its version and architectures (codes {codes:?})")));
        }
        let mut archs = vec![0; count as usize];
        // SAFETY: the array has the length that the library asked for.
        let code = unsafe { (table.archs)(archs.as_mut_ptr()) };
        let toolkit = u16::try_from(major).ok().zip(u16::try_from(minor).ok()).filter(|_| code == 0);
        let toolkit = toolkit.map(|(major, minor)| Toolkit { major, minor });
        let toolkit = toolkit.ok_or_else(|| unusable(format!("expected a version of CUDA, got {major}.{minor}")))?;
        let archs = archs.into_iter().filter_map(|a| u16::try_from(a).ok()).collect();
        Ok(Self { table, toolkit, archs })
    }

    fn ok(&self, toolchain: &str, call: &'static str, code: c_int) -> Result<(), ToolchainError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any code and returns a static text or null.
        let text = unsafe { (self.table.error_text)(code) };
        let text = if text.is_null() {
            "unknown".into()
        } else {
            // SAFETY: not null, hence a static C string of the library.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(ToolchainError::Call { toolchain: toolchain.to_owned(), call, code, text })
    }

    /// Compiles on the calling thread.
    fn run(&self, toolchain: &str, manifest: &CompileManifest) -> Result<(Vec<u8>, String), ToolchainError> {
        let unit = &manifest.unit;
        let text = c_string(&unit.name, &unit.text)?;
        let name = c_string("unit name", &unit.name)?;
        let mut names = Vec::new();
        let mut texts = Vec::new();
        for (name, text) in &unit.closure.headers {
            check_name(name)?;
            names.push(c_string("include name", name)?);
            texts.push(c_string(name, text)?);
        }
        let options = manifest.options.iter().map(|o| c_string("option", o)).collect::<Result<Vec<_>, _>>()?;
        let (names, texts, options) = (Pointers::to(&names), Pointers::to(&texts), Pointers::to(&options));

        let mut program = Guard { table: &self.table, program: std::ptr::null_mut() };
        // SAFETY: all strings are terminated and outlive the call; both arrays have the length that is passed.
        let code = unsafe {
            (self.table.create)(
                &raw mut program.program,
                text.as_ptr(),
                name.as_ptr(),
                names.len(),
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        self.ok(toolchain, "nvrtcCreateProgram", code)?;
        // SAFETY: the program was created above and lives; the array has the length that is passed.
        let code = unsafe { (self.table.compile)(program.program, options.len(), options.as_ptr()) };
        let log = self.fetch(toolchain, &program, ("nvrtcGetProgramLog", self.table.log_size, self.table.log))?;
        let log = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default().trim_end().to_owned();
        match code {
            5 => {
                let (toolchain, options) = (toolchain.to_owned(), manifest.options.join(" "));
                return Err(ToolchainError::Options { toolchain, options, log });
            }
            6 => {
                let (toolchain, unit) = (toolchain.to_owned(), unit.name.clone());
                return Err(ToolchainError::Compile { toolchain, unit, target: manifest.target, log });
            }
            code => self.ok(toolchain, "nvrtcCompileProgram", code)?,
        }
        let bytes = if let Target::Compute(..) = manifest.target {
            let mut text = self.fetch(toolchain, &program, ("nvrtcGetPTX", self.table.ptx_size, self.table.ptx))?;
            let end = text.iter().rposition(|&c| c != 0).map_or(0, |last| last + 1);
            text.truncate(end);
            text
        } else {
            self.fetch(toolchain, &program, ("nvrtcGetCUBIN", self.table.cubin_size, self.table.cubin))?
        };
        Ok((bytes, log))
    }

    /// One of the library's pairs of size and content.
    fn fetch(
        &self,
        toolchain: &str,
        program: &Guard<'_>,
        (name, size, content): (
            &'static str,
            unsafe extern "C" fn(Program, *mut usize) -> c_int,
            unsafe extern "C" fn(Program, *mut c_char) -> c_int,
        ),
    ) -> Result<Vec<u8>, ToolchainError> {
        let mut bytes = 0;
        // SAFETY: the program lives, and the call writes one integer.
        self.ok(toolchain, name, unsafe { size(program.program, &raw mut bytes) })?;
        let mut buffer = vec![0; bytes];
        // SAFETY: the buffer has the size that the library asked for.
        self.ok(toolchain, name, unsafe { content(program.program, buffer.as_mut_ptr().cast()) })?;
        Ok(buffer)
    }
}

impl Toolchain for Nvrtc {
    fn kind(&self) -> Kind {
        Kind::Nvrtc
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn toolkit(&self) -> Option<Toolkit> {
        Some(self.toolkit)
    }

    fn describe(&self) -> String {
        format!("NVRTC {} at {}", self.toolkit, self.path.display())
    }

    fn supports(&self, target: Target) -> Result<(), String> {
        match self.archs() {
            Some(archs) => supports("NVRTC", self.toolkit, &archs, target),
            None => supports("NVRTC", self.toolkit, &known_archs(self.toolkit), target),
        }
    }

    fn spell(&self, target: Target, options: &Options, profile: Profile) -> Vec<String> {
        let mut spelled =
            vec![format!("--gpu-architecture={target}"), "--std=c++17".into(), "--no-source-include".into()];
        // Leaves out declarations of the runtime API: a fifth less time for a small unit, and the same bytes.
        if self.toolkit >= (Toolkit { major: 12, minor: 4 }) {
            spelled.push("--minimal".into());
        }
        // NVRTC's own cache, new in 12.9, sits outside of our keys.
        if self.toolkit >= (Toolkit { major: 12, minor: 9 }) {
            spelled.push("--no-cache".into());
        }
        if options.fast_math {
            spelled.push("--use_fast_math".into());
        }
        if let Some(registers) = options.max_registers {
            spelled.push(format!("--maxrregcount={registers}"));
        }
        match profile {
            Profile::Release => {}
            Profile::Lineinfo => spelled.push("-lineinfo".into()),
            Profile::Debug => spelled.push("-G".into()),
        }
        spelled
    }

    fn compile(&self, manifest: &CompileManifest) -> Result<Compiled, ToolchainError> {
        check_planned_by(self, manifest)?;
        let loaded = self.loaded()?;
        // Now the library's own list decides.
        check_planned_by(self, manifest)?;
        check_name(&manifest.unit.name)?;
        check_environment(|name| std::env::var_os(name))?;
        let started = Instant::now();
        let (bytes, log) = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("nvrtc".into()).stack_size(STACK);
            let thread =
                thread.spawn_scoped(scope, || loaded.run(&self.id, manifest)).map_err(ToolchainError::Thread)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        check_image(self.id(), manifest, &bytes)?;
        Ok(Compiled { bytes, log, milliseconds: started.elapsed().as_millis() as u64 })
    }
}

fn check_environment(get: impl Fn(&str) -> Option<OsString>) -> Result<(), ToolchainError> {
    for &name in REFUSED {
        if let Some(value) = get(name).filter(|value| !value.is_empty()) {
            return Err(ToolchainError::Environment { name, value: value.to_string_lossy().into_owned() });
        }
    }
    Ok(())
}

/// Whether a mapped library is in the process only because we loaded it: an earlier search must not decide a later one.
pub(super) fn is_own(path: &Path) -> bool {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.get(path).is_some_and(|nvrtc| !nvrtc.foreign)
}

/// Whether a CUDA compiler that lists these architectures knows a target. The lists have no suffixes.
pub(super) fn supports(compiler: &str, toolkit: Toolkit, archs: &[u16], target: Target) -> Result<(), String> {
    let Some(arch) = target.arch() else {
        return Err(format!("{compiler} {toolkit} compiles for GPUs, not for `{target}`"));
    };
    let facts = arch.facts();
    if !archs.contains(&arch.0) {
        let known = archs.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let since = facts.filter(|f| f.since > toolkit).map(|f| format!("; CUDA {} and newer know it", f.since));
        return Err(format!(
            "{compiler} {toolkit} does not know {target}, it knows {known}{}",
            since.unwrap_or_default()
        ));
    }
    if target.suffix() == Suffix::Family && toolkit < (Toolkit { major: 12, minor: 9 }) {
        return Err(format!("{compiler} {toolkit} does not know {target}: the suffix `f` came with CUDA 12.9"));
    }
    Ok(())
}

/// Success is no proof of output.
pub(super) fn check_image(toolchain: &str, manifest: &CompileManifest, bytes: &[u8]) -> Result<(), ToolchainError> {
    let ptx = matches!(manifest.target, Target::Compute(..));
    let good = if ptx {
        bytes.windows(8).take(4096).any(|w| w == b".version") && !bytes.contains(&0)
    } else {
        bytes.len() > 64 && bytes.starts_with(b"\x7fELF")
    };
    if good {
        return Ok(());
    }
    let start = bytes.iter().take(8).fold(String::new(), |text, byte| text + &format!(" {byte:02x}"));
    Err(ToolchainError::Output {
        toolchain: toolchain.to_owned(),
        unit: manifest.unit.name.clone(),
        expected: if ptx { "PTX" } else { "ELF file" },
        got: format!("{} bytes, starting with{start}", bytes.len()),
    })
}

/// Loads a library by absolute path, its symbols hidden from everybody else. It stays loaded: closing runs finalisers,
/// which is no use to anybody, and other handles of it may be in use.
pub(super) fn load_for_good(path: &Path) -> Result<&'static Library, ToolchainError> {
    // SAFETY: running the initialisers of a compiler library is what the user asked for by having it found here.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    match library {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(source) => Err(ToolchainError::Load { path: path.to_owned(), source }),
    }
}

/// The builtins that the library will get: they are looked up by bare name, so a file of that name that is in the
/// process already wins over the one beside the library. The `.alt` files belong to the alternative library.
fn builtins(library: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(parent(library)).ok()?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    found.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libnvrtc-builtins.so.")));
    // A folder with links has `.so.13.0` and `.so.13.0.88`; the shorter one is the name that is asked for.
    found.sort_by_key(|p| (p.as_os_str().len(), p.clone()));
    let beside = found.into_iter().next()?;
    let mapped = super::find::mapped("libnvrtc-builtins.so");
    mapped.into_iter().find(|m| m.file_name() == beside.file_name()).or(Some(beside))
}

fn builds(library: &Path, builtins: &Path) -> Result<[BuildId; 2], ToolchainError> {
    Ok([build_id(library).map_err(io("read", library))?, build_id(builtins).map_err(io("read", builtins))?])
}

/// The version that builtins carry in their name: `libnvrtc-builtins.so.13.0` or `….so.13.0.88`.
pub(super) fn builtins_version(path: &Path) -> Option<Toolkit> {
    let name = path.file_name()?.to_str()?.strip_prefix("libnvrtc-builtins.so.")?;
    let mut parts = name.splitn(3, '.');
    format!("{}.{}", parts.next()?, parts.next()?).parse().ok()
}

/// The architectures that a toolkit compiles for, as far as this library knows them.
fn known_archs(toolkit: Toolkit) -> Vec<u16> {
    parbake_model::target::ARCHS.iter().filter(|f| f.since <= toolkit).map(|f| f.arch.0).collect()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn c_string(what: &str, text: &str) -> Result<CString, ToolchainError> {
    CString::new(text).map_err(|_| ToolchainError::Nul { what: what.to_owned() })
}

/// An array of C strings, borrowed.
struct Pointers<'a> {
    pointers: Vec<*const c_char>,
    _strings: &'a [CString],
}

impl<'a> Pointers<'a> {
    fn to(strings: &'a [CString]) -> Self {
        Self { pointers: strings.iter().map(|s| s.as_ptr()).collect(), _strings: strings }
    }

    fn len(&self) -> c_int {
        self.pointers.len() as c_int
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Destroys the program on every way out.
struct Guard<'a> {
    table: &'a Table,
    program: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program was created by this library and is destroyed once.
            unsafe { (self.table.destroy)(&raw mut self.program) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn release(nvrtc: &Nvrtc, entry: &str, target: &str) -> Result<Compiled, ToolchainError> {
        let unit = testing::scale_unit(entry);
        nvrtc.compile(&nvrtc.plan(unit, target.parse().unwrap(), &Options::default(), Profile::Release))
    }

    #[test]
    fn suffixes_and_architectures_are_judged_with_reasons() {
        let archs = [80, 90, 100, 120];
        let judge =
            |toolkit: &str, target: &str| supports("NVRTC", toolkit.parse().unwrap(), &archs, target.parse().unwrap());
        assert_eq!(judge("12.9", "sm_100f"), Ok(()));
        assert_eq!(judge("12.8", "sm_90a"), Ok(()));
        assert!(judge("12.8", "sm_100f").unwrap_err().contains("12.9"));
        let reason = judge("12.9", "sm_110").unwrap_err();
        assert!(reason.contains("NVRTC 12.9 does not know sm_110") && reason.contains("CUDA 13.0"), "{reason}");
        assert!(judge("12.9", "host").unwrap_err().contains("host"));
    }

    #[test]
    fn options_from_the_environment_are_refused_by_name() {
        let set = |name: &'static str, value: &'static str| {
            check_environment(|n| (n == name).then(|| OsString::from(value))).map_err(|e| e.report().to_string())
        };
        assert!(set("NVRTC_APPEND_FLAGS", "-lineinfo").unwrap_err().contains("help: unset NVRTC_APPEND_FLAGS"));
        assert_eq!(set("NVRTC_APPEND_FLAGS", ""), Ok(()));
        assert_eq!(set("NVRTC_DISABLE_PCH", "1"), Ok(()));
    }

    #[test]
    fn cubins_ptx_and_profiles() {
        for version in ["12.9", "13.0"] {
            let Some((nvrtc, _)) = testing::cuda(version) else { continue };
            assert_eq!(nvrtc.toolkit().unwrap().to_string(), version);
            assert!(nvrtc.id().starts_with(&format!("nvrtc {version} ")) && nvrtc.id().len() == 27, "{}", nvrtc.id());
            for target in ["sm_80", "sm_90a", "sm_100f"] {
                let compiled = release(&nvrtc, "k", target).unwrap();
                assert!(compiled.bytes.starts_with(b"\x7fELF"), "{target}");
                assert_eq!(compiled.bytes, release(&nvrtc, "k", target).unwrap().bytes);
            }
            let ptx = String::from_utf8(release(&nvrtc, "k", "compute_90").unwrap().bytes).unwrap();
            assert!(ptx.contains(".target sm_90") && ptx.contains(".entry k("), "{ptx}");

            let options = Options { fast_math: true, max_registers: Some(40) };
            let mut seen = Vec::new();
            for profile in [Profile::Release, Profile::Lineinfo, Profile::Debug] {
                let plan = nvrtc.plan(testing::scale_unit("k"), "sm_90a".parse().unwrap(), &options, profile);
                seen.push(nvrtc.compile(&plan).unwrap().bytes);
            }
            assert!(seen[0] != seen[1] && seen[1] != seen[2]);
        }
    }

    #[test]
    fn errors_name_unit_line_and_option() {
        let Some((nvrtc, _)) = testing::cuda("12.9") else { return };
        let target = "sm_90a".parse().unwrap();
        let bad = testing::unit("bad", "\nextern \"C\" __global__ void bad() { nope(); }\n", &[]);
        let error = nvrtc.compile(&nvrtc.plan(bad, target, &Options::default(), Profile::Release)).unwrap_err();
        assert_eq!(error.code(), "PB-1509");
        assert!(error.to_string().contains("bad.cu(2)"), "{error}");

        let mut plan = nvrtc.plan(testing::scale_unit("k"), target, &Options::default(), Profile::Release);
        plan.options.push("--no-such-option".into());
        assert_eq!(nvrtc.compile(&plan).unwrap_err().code(), "PB-1510");
        plan.toolchain = "nvrtc 1.0 x".into();
        assert_eq!(nvrtc.compile(&plan).unwrap_err().code(), "PB-1506");

        let error = release(&nvrtc, "k", "sm_110").unwrap_err();
        assert_eq!((error.code(), error.to_string().contains("sm_110")), ("PB-1505", true));
    }

    #[test]
    fn only_the_closure_is_seen() {
        let Some((nvrtc, _)) = testing::cuda("12.9") else { return };
        // The working directory of tests is that of the crate, where `lib.rs` lies.
        let unit = testing::unit("stray", "#include \"lib.rs\"\n", &[]);
        let plan = nvrtc.plan(unit, "sm_80".parse().unwrap(), &Options::default(), Profile::Release);
        let error = nvrtc.compile(&plan).unwrap_err().to_string();
        assert!(error.contains("could not open source file"), "{error}");
    }

    #[test]
    fn warnings_come_back() {
        let Some((nvrtc, _)) = testing::cuda("13.0") else { return };
        let text = "extern \"C\" __global__ void w(int* p) { int unused; *p = 1; }\n";
        let plan =
            nvrtc.plan(testing::unit("w", text, &[]), "sm_80".parse().unwrap(), &Options::default(), Profile::Release);
        let log = nvrtc.compile(&plan).unwrap().log;
        assert!(log.contains("w.cu(1)") && log.contains("unused"), "{log}");
    }

    #[test]
    fn threads_compile_at_once_and_alike() {
        let Some((nvrtc, _)) = testing::cuda("12.9") else { return };
        let alone = release(&nvrtc, "k", "sm_90a").unwrap().bytes;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| release(&nvrtc, "k", "sm_90a").unwrap().bytes)).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), alone);
            }
        });
    }
}
