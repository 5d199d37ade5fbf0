//! The CUDA driver: found without a panic, called through an own table whose results are plain integers.
//!
//! An absent driver is a fact, not an error. cudarc supplies the library names and the struct layouts; its functions
//! are not called, because they panic on a missing symbol and turn unknown result codes into invalid enum values.

use cudarc::driver::sys;
use once_cell::sync::Lazy;
use parbake_model::Toolkit;
use parbake_model::target::Arch;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

pub(crate) type Handle = *mut c_void;

/// What the machine offers. Found once, then kept.
#[derive(Debug)]
pub enum Driver {
    /// There is no driver library.
    Absent {
        /// The names that were tried.
        searched: Vec<String>,
    },
    /// There is one, but it cannot be used.
    Unusable {
        /// What it said, and what to do.
        why: String,
    },
    /// It works.
    Ready(Box<Ready>),
}

/// A working driver.
#[derive(Debug)]
pub struct Ready {
    /// The newest toolkit that it supports.
    pub version: Toolkit,
    /// Its devices.
    pub devices: Vec<Device>,
    pub(crate) table: Table,
}

/// A GPU.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its number in this process.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub arch: Arch,
    /// Bytes of memory.
    pub memory: u64,
}

macro_rules! table { ($($field:ident: fn($($arg:ty),*) = $symbol:literal;)*) => {
    /// The driver entries that are used; all exist since CUDA 12.0.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Table { $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> c_int,)* }
    impl Table {
        fn load() -> Result<Self, &'static str> {
            // SAFETY: the caller has seen that the library opens, so this does not panic.
            let library = unsafe { sys::culib() };
            Ok(Self { $($field: {
                // SAFETY: the signature is the one that the driver API documents for this symbol.
                let symbol = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> c_int>(concat!($symbol, "\0").as_bytes()) };
                *symbol.map_err(|_| $symbol)?
            },)* })
        }
    }
} }

table! {
    init: fn(c_uint) = "cuInit";
    driver_version: fn(*mut c_int) = "cuDriverGetVersion";
    error_name: fn(c_int, *mut *const c_char) = "cuGetErrorName";
    error_text: fn(c_int, *mut *const c_char) = "cuGetErrorString";
    device_count: fn(*mut c_int) = "cuDeviceGetCount";
    device_get: fn(*mut c_int, c_int) = "cuDeviceGet";
    device_name: fn(*mut c_char, c_int, c_int) = "cuDeviceGetName";
    device_memory: fn(*mut usize, c_int) = "cuDeviceTotalMem_v2";
    device_attribute: fn(*mut c_int, c_int, c_int) = "cuDeviceGetAttribute";
    primary_retain: fn(*mut Handle, c_int) = "cuDevicePrimaryCtxRetain";
    current_get: fn(*mut Handle) = "cuCtxGetCurrent";
    current_set: fn(Handle) = "cuCtxSetCurrent";
    synchronize: fn() = "cuCtxSynchronize";
    library_load: fn(*mut Handle, *const c_void, *mut c_int, *mut Handle, c_uint, *mut c_int, *mut Handle, c_uint) = "cuLibraryLoadData";
    library_kernel: fn(*mut Handle, Handle, *const c_char) = "cuLibraryGetKernel";
    kernel_function: fn(*mut Handle, Handle) = "cuKernelGetFunction";
    launch: fn(*const sys::CUlaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void) = "cuLaunchKernelEx";
    capture_mode: fn(*mut c_int) = "cuThreadExchangeStreamCaptureMode";
    mem_alloc: fn(*mut u64, usize) = "cuMemAlloc_v2";
    mem_free: fn(u64) = "cuMemFree_v2";
    copy_to_device: fn(u64, *const c_void, usize) = "cuMemcpyHtoD_v2";
    copy_to_host: fn(*mut c_void, u64, usize) = "cuMemcpyDtoH_v2";
    stream_create: fn(*mut Handle, c_uint) = "cuStreamCreate";
    event_create: fn(*mut Handle, c_uint) = "cuEventCreate";
    event_record: fn(Handle, Handle) = "cuEventRecord";
    event_synchronize: fn(Handle) = "cuEventSynchronize";
    event_elapsed: fn(*mut f32, Handle, Handle) = "cuEventElapsedTime";
    event_destroy: fn(Handle) = "cuEventDestroy_v2";
}

const NOT_INITIALIZED: i32 = 3;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with {name} ({code}): {text}")]
pub struct DriverError {
    /// The call.
    pub call: &'static str,
    /// Its result.
    pub code: i32,
    /// The result's name.
    pub name: String,
    /// What the driver says of it.
    pub text: String,
}

impl Table {
    /// Turns a result code into an error.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    #[cold]
    fn error(&self, call: &'static str, code: c_int) -> DriverError {
        let read = |f: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: `text` receives a static string of the driver, or stays null for a code it does not know.
            unsafe {
                f(code, &raw mut text);
                if text.is_null() { "unknown".to_owned() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
            }
        };
        DriverError { call, code, name: read(self.error_name), text: read(self.error_text) }
    }
}

/// The driver of this machine. Never panics; the first call opens the library and lists the devices.
#[must_use]
pub fn driver() -> &'static Driver {
    static DRIVER: Lazy<Driver> = Lazy::new(probe);
    &DRIVER
}

/// The working driver, if there is one with a device.
#[must_use]
pub fn ready() -> Option<&'static Ready> {
    match driver() {
        Driver::Ready(ready) => Some(ready),
        _ => None,
    }
}

fn probe() -> Driver {
    // SAFETY: opens libraries by the driver's own names, nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Driver::Absent { searched: cudarc::get_lib_name_candidates("cuda") };
    }
    let table = match Table::load() {
        Ok(table) => table,
        Err(symbol) => {
            let why = format!("the driver library has no {symbol}; Parbake needs a driver of CUDA 12.0 (525) or newer");
            return Driver::Unusable { why };
        }
    };
    match list(table) {
        Ok(ready) => Driver::Ready(Box::new(ready)),
        Err(e) => {
            let advice = match e.code {
                34 => "; a stub library is found first: remove the toolkit's stubs folder from LD_LIBRARY_PATH",
                100 => "; no GPU is visible: see CUDA_VISIBLE_DEVICES and whether the container was given one",
                803 | 804 => {
                    "; driver library and kernel module differ: reinstall one, or drop the compatibility package"
                }
                _ => "",
            };
            Driver::Unusable { why: format!("{e}{advice}") }
        }
    }
}

fn list(table: Table) -> Result<Ready, DriverError> {
    forks::watch();
    let (mut version, mut count) = (0, 0);
    // SAFETY: plain out-parameters of the documented types.
    unsafe {
        table.check("cuInit", (table.init)(0))?;
        table.check("cuDriverGetVersion", (table.driver_version)(&raw mut version))?;
        table.check("cuDeviceGetCount", (table.device_count)(&raw mut count))?;
    }
    let devices = (0..count).map(|ordinal| device(&table, ordinal)).collect::<Result<_, _>>()?;
    Ok(Ready { version: Toolkit::from_driver(version), devices, table })
}

fn device(table: &Table, ordinal: c_int) -> Result<Device, DriverError> {
    let mut name = [0u8; 256];
    let (mut handle, mut memory, mut major, mut minor) = (0, 0, 0, 0);
    // SAFETY: plain out-parameters; `name` is as long as stated.
    unsafe {
        table.check("cuDeviceGet", (table.device_get)(&raw mut handle, ordinal))?;
        table.check("cuDeviceGetName", (table.device_name)(name.as_mut_ptr().cast(), 255, handle))?;
        table.check("cuDeviceTotalMem", (table.device_memory)(&raw mut memory, handle))?;
        table.check("cuDeviceGetAttribute", (table.device_attribute)(&raw mut major, MAJOR, handle))?;
        table.check("cuDeviceGetAttribute", (table.device_attribute)(&raw mut minor, MINOR, handle))?;
    }
    let name = CStr::from_bytes_until_nul(&name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Device { ordinal, name, arch: Arch((major * 10 + minor) as u16), memory: memory as u64 })
}

/// Makes a device's primary context current, and restores what was current when dropped.
pub(crate) struct Current<'a> {
    table: &'a Table,
    restore: Option<Handle>,
}

impl<'a> Current<'a> {
    pub(crate) fn enter(ready: &'a Ready, ordinal: i32) -> Result<Self, DriverError> {
        let table = &ready.table;
        if forks::happened() {
            return Err(DriverError {
                call: "fork",
                code: NOT_INITIALIZED,
                name: "forked process".to_owned(),
                text: "this process was forked from one that had initialised the driver, which does not survive that; \
                       start workers by spawning (in Python: multiprocessing's `spawn`)"
                    .to_owned(),
            });
        }
        let wanted = primary(ready, ordinal)?;
        let mut before = std::ptr::null_mut();
        // SAFETY: a plain out-parameter, and a context that is retained for the life of the process.
        unsafe {
            table.check("cuCtxGetCurrent", (table.current_get)(&raw mut before))?;
            if before == wanted {
                return Ok(Self { table, restore: None });
            }
            table.check("cuCtxSetCurrent", (table.current_set)(wanted))?;
        }
        Ok(Self { table, restore: Some(before) })
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.restore {
            // SAFETY: `before` was current when this guard was made. A failure leaves nothing that could be done.
            unsafe { (self.table.current_set)(before) };
        }
    }
}

/// The primary context of a device: the one that the frameworks use too. Retained once, never released: no driver call
/// is made at exit.
fn primary(ready: &Ready, ordinal: i32) -> Result<Handle, DriverError> {
    use std::sync::atomic::{AtomicPtr, Ordering};
    const MANY: usize = 64;
    static CONTEXTS: [AtomicPtr<c_void>; MANY] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MANY];
    let slot = CONTEXTS.get(ordinal as usize);
    if let Some(known) = slot.map(|s| s.load(Ordering::Acquire)).filter(|p| !p.is_null()) {
        return Ok(known);
    }
    let (mut handle, mut context) = (0, std::ptr::null_mut());
    // SAFETY: plain out-parameters.
    unsafe {
        ready.table.check("cuDeviceGet", (ready.table.device_get)(&raw mut handle, ordinal))?;
        ready.table.check("cuDevicePrimaryCtxRetain", (ready.table.primary_retain)(&raw mut context, handle))?;
    }
    if let Some(slot) = slot {
        slot.store(context, Ordering::Release);
    }
    Ok(context)
}

/// Whether this process is a fork of one that had initialised the driver. The driver's state does not survive a fork, and using it
/// hangs or corrupts; asking for the process number at each launch would be a system call.
mod forks {
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicBool, Ordering};

    static FORKED: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" {
        fn pthread_atfork(
            before: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }

    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }

    /// From now on, children know.
    pub(super) fn watch() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler only stores to an atomic, which is allowed between fork and exec.
            let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
        });
    }

    pub(super) fn happened() -> bool {
        FORKED.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        unsafe extern "C" {
            fn fork() -> c_int;
            fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
            fn _exit(status: c_int) -> !;
        }

        #[test]
        fn a_child_knows_and_its_parent_is_as_before() {
            watch();
            let mut status = 0;
            // SAFETY: the child loads an atomic and ends; nothing else runs in it.
            unsafe {
                let child = fork();
                if child == 0 {
                    _exit(if happened() { 7 } else { 0 });
                }
                assert_eq!(waitpid(child, &raw mut status, 0), child);
            }
            assert_eq!(status >> 8, 7);
            assert!(!happened());
        }
    }
}
