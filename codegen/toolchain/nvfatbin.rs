//! nvFatbin: wraps one cubin as a fatbin with one uncompressed image.
//!
//! It checks little: a cubin cut in half and a 90a cubin labelled 90 are accepted. Whoever calls it has checked the
//! cubin's architecture, suffix and completeness before.

use super::ToolchainError;
use super::build_id::build_id;
use super::folder::io;
use super::nvrtc::{load_for_good, table};
use libloading::os::unix::Library;
use parbake_model::digest::Digest;
use parbake_model::{Target, Toolkit};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

type Handle = *mut c_void;

/// One dash each; `--compress-mode=none`, which the command-line tool takes, is refused here.
const OPTIONS: [&CStr; 4] = [c"-64", c"-cuda", c"-host=linux", c"-compress=false"];
/// The first word of a fatbin.
const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

table! {
    /// The functions in use.
    Table {
        version: fn(*mut c_uint, *mut c_uint) -> c_int = "nvFatbinVersion";
        error_text: fn(c_int) -> *const c_char = "nvFatbinGetErrorString";
        create: fn(*mut Handle, *const *const c_char, usize) -> c_int = "nvFatbinCreate";
        destroy: fn(*mut Handle) -> c_int = "nvFatbinDestroy";
        add_cubin: fn(Handle, *const c_void, usize, *const c_char, *const c_char) -> c_int = "nvFatbinAddCubin";
        add_ptx: fn(Handle, *const c_char, usize, *const c_char, *const c_char, *const c_char) -> c_int
            = "nvFatbinAddPTX";
        size: fn(Handle, *mut usize) -> c_int = "nvFatbinSize";
        get: fn(Handle, *mut c_void) -> c_int = "nvFatbinGet";
    }
}

/// A loaded nvFatbin. It is never unloaded.
pub struct Nvfatbin {
    table: Table,
    path: PathBuf,
    toolkit: Toolkit,
    id: String,
}

/// What was opened in this process, by canonical path.
static OPENED: Mutex<BTreeMap<PathBuf, Arc<Nvfatbin>>> = Mutex::new(BTreeMap::new());

impl Nvfatbin {
    /// Loads a library, or gives the one that was loaded from that path before.
    ///
    /// # Errors
    /// If it cannot be loaded, or is older than CUDA 12.4, the first that has it.
    pub fn open(path: &Path) -> Result<Arc<Self>, ToolchainError> {
        let path = path.canonicalize().map_err(io("find", path))?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = opened.get(&path) {
            return Ok(Arc::clone(library));
        }
        let table = Table::load(load_for_good(&path)?, &path)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the call writes two integers.
        let code = unsafe { (table.version)(&raw mut major, &raw mut minor) };
        if code != 0 || !(12..1000).contains(&major) || minor > 999 {
            let why = format!("expected CUDA 12.4 or newer, got {major}.{minor} (code {code})");
            return Err(ToolchainError::Unusable { path, why });
        }
        let toolkit = Toolkit { major: major as u16, minor: minor as u16 };
        let build = build_id(&path).map_err(io("read", &path))?;
        let id = format!("nvfatbin {toolkit} {}", Digest::of(build.to_string().as_bytes()).short(16));
        let library = Arc::new(Self { table, path: path.clone(), toolkit, id });
        opened.insert(path, Arc::clone(&library));
        Ok(library)
    }

    /// Name, version and build, for provenance. The container's header differs between versions.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The CUDA version.
    #[must_use]
    pub fn toolkit(&self) -> Toolkit {
        self.toolkit
    }

    /// Where it was found.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("nvFatbin {} at {}", self.toolkit, self.path.display())
    }

    /// A fatbin with this cubin, or this PTX, as its only image. The same input gives the same bytes.
    ///
    /// # Errors
    /// A target that is no GPU, bytes that are no cubin or no text, or what the library says.
    pub fn fatbin(&self, given: &[u8], target: Target) -> Result<Vec<u8>, ToolchainError> {
        let ptx = match target {
            Target::Sm(..) => false,
            Target::Compute(..) => true,
            Target::Host => {
                let reason = "a fatbin holds code for GPUs".to_owned();
                return Err(ToolchainError::Unsupported { target, reason });
            }
        };
        let other = || format!("{} bytes of something else", given.len());
        if !ptx && (given.len() <= 64 || !given.starts_with(b"\x7fELF")) {
            return Err(self.output(target, "ELF file", other()));
        }
        let text = CString::new(given).ok().filter(|_| ptx);
        if ptx && text.is_none() {
            return Err(self.output(target, "PTX", other()));
        }
        let arch = CString::new(target.digits()).map_err(|_| ToolchainError::Nul { what: "target".into() })?;
        let options = OPTIONS.map(CStr::as_ptr);
        let mut fatbin = Guard { table: &self.table, handle: std::ptr::null_mut() };
        // SAFETY: the options are static C strings, and the length is that of the array.
        let code = unsafe { (self.table.create)(&raw mut fatbin.handle, options.as_ptr(), options.len()) };
        self.ok("nvFatbinCreate", code)?;
        if let Some(text) = text {
            let bytes = text.as_bytes_with_nul();
            // SAFETY: the handle was created above; pointer and length are those of a text with its zero at the end; all
            // strings are terminated.
            let code = unsafe {
                let (arch, none) = (arch.as_ptr(), c"".as_ptr());
                (self.table.add_ptx)(fatbin.handle, bytes.as_ptr().cast(), bytes.len(), arch, none, none)
            };
            self.ok("nvFatbinAddPTX", code)?;
        } else {
            // SAFETY: the handle was created above; pointer and length are those of a slice; both strings are terminated.
            let code = unsafe {
                (self.table.add_cubin)(fatbin.handle, given.as_ptr().cast(), given.len(), arch.as_ptr(), c"".as_ptr())
            };
            self.ok("nvFatbinAddCubin", code)?;
        }
        let mut bytes = 0;
        // SAFETY: the handle lives, and the call writes one integer.
        self.ok("nvFatbinSize", unsafe { (self.table.size)(fatbin.handle, &raw mut bytes) })?;
        let mut image = vec![0; bytes];
        // SAFETY: the buffer has the size that the library asked for.
        self.ok("nvFatbinGet", unsafe { (self.table.get)(fatbin.handle, image.as_mut_ptr().cast()) })?;
        // Comments of a text are left out.
        if (!ptx && image.len() <= given.len()) || !image.starts_with(&MAGIC) {
            return Err(self.output(target, "fatbin", format!("{} bytes for {}", image.len(), given.len())));
        }
        Ok(image)
    }

    fn output(&self, target: Target, expected: &'static str, got: String) -> ToolchainError {
        ToolchainError::Output { toolchain: self.id.clone(), unit: target.to_string(), expected, got }
    }

    fn ok(&self, call: &'static str, code: c_int) -> Result<(), ToolchainError> {
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
        Err(ToolchainError::Call { toolchain: self.id.clone(), call, code, text })
    }
}

/// Destroys the fatbin on every way out.
struct Guard<'a> {
    table: &'a Table,
    handle: Handle,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle was created by this library and is destroyed once.
            unsafe { (self.table.destroy)(&raw mut self.handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Toolchain, testing};
    use parbake_model::Target;
    use parbake_model::identity::Profile;
    use parbake_model::op::Options;

    #[test]
    fn one_cubin_gives_the_same_fatbin_every_time() {
        for version in ["12.9", "13.0"] {
            let Some((nvrtc, nvfatbin)) = testing::cuda(version) else { continue };
            let target = "sm_90a".parse().unwrap();
            let unit = testing::scale_unit("fatbin");
            let cubin = nvrtc.compile(&nvrtc.plan(unit, target, &Options::default(), Profile::Release)).unwrap().bytes;
            let fatbin = nvfatbin.fatbin(&cubin, target).unwrap();
            assert_eq!(fatbin, nvfatbin.fatbin(&cubin, target).unwrap());
            assert!(fatbin.windows(cubin.len()).any(|w| w == cubin), "stored as it is");
            assert!(fatbin.len() < cubin.len() + 256);

            let error = nvfatbin.fatbin(&cubin, "sm_80".parse().unwrap()).unwrap_err();
            assert_eq!(error.code(), "PB-1511", "{error}");
            assert_eq!(nvfatbin.fatbin(&[0; 100], target).unwrap_err().code(), "PB-1512");
            assert_eq!(nvfatbin.fatbin(&cubin, Target::Host).unwrap_err().code(), "PB-1505");

            let target: Target = "compute_90".parse().unwrap();
            assert_eq!(nvfatbin.fatbin(&cubin, target).unwrap_err().code(), "PB-1512", "a cubin is no text");
            let unit = testing::scale_unit("fatbin");
            let ptx = nvrtc.compile(&nvrtc.plan(unit, target, &Options::default(), Profile::Release)).unwrap().bytes;
            let fatbin = nvfatbin.fatbin(&ptx, target).unwrap();
            assert_eq!(fatbin, nvfatbin.fatbin(&ptx, target).unwrap());
            let toolkit = nvrtc.toolkit().unwrap();
            parbake_model::fatbin::check_single_ptx(&fatbin, target, "fatbin", toolkit).unwrap();
        }
    }
}
