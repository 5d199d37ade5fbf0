//! The CUDA driver: found without a panic, called through an own table whose results are plain integers.
//!
//! An absent driver is a fact, not an error. cudarc supplies the struct layouts; its functions are not called, because
//! they panic on a missing symbol and turn unknown result codes into invalid enum values, and it asks for `libcuda.so`
//! first, which is what a toolkit calls its stub.

pub(crate) mod confidential;
mod current;
mod error;
pub(crate) mod graph;

pub(crate) use current::{Current, RelaxedCapture, capturing, primary};
pub use error::{DriverError, NoDevice, Rejected};

use cudarc::driver::sys;
use once_cell::sync::Lazy;
use parbake_model::Toolkit;
use parbake_model::target::Arch;
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

pub(crate) type Handle = *mut c_void;

/// What the machine offers. Found once, then kept.
#[derive(Debug)]
pub enum Driver {
    /// There is no driver library.
    Absent {
        /// What opening each name said.
        searched: Vec<String>,
    },
    /// There is one, but it cannot be used, or shows no device that can.
    Unusable {
        /// Why.
        why: NoDevice,
    },
    /// It works.
    Ready(Box<Ready>),
}

/// A working driver with a device or more.
#[derive(Debug)]
pub struct Ready {
    /// The newest toolkit that it supports.
    pub version: Toolkit,
    /// Its devices, ascending by their number; those that do not answer are left out, so that they spoil no other.
    pub devices: Vec<Device>,
    /// Devices that do not answer, and what they say.
    pub broken: Vec<(i32, DriverError)>,
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
    /// Bytes of the cache that all of it shares; 0 if the driver does not tell.
    pub cache: u64,
}

macro_rules! table { ($($field:ident: fn($($arg:ty),*) = $symbol:literal;)*) => {
    /// The driver entries that are used; all exist since CUDA 12.0.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Table { $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> c_int,)* }
    impl Table {
        fn load(library: &libloading::Library) -> Result<Self, &'static str> {
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
    function_set: fn(Handle, c_int, c_int) = "cuFuncSetAttribute";
    launch: fn(*const sys::CUlaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void) = "cuLaunchKernelEx";
    tensor_map: fn(*mut c_void, c_int, c_uint, *const c_void, *const u64, *const u64, *const u32, *const u32, c_int, c_int, c_int, c_int) = "cuTensorMapEncodeTiled";
    capture_mode: fn(*mut c_int) = "cuThreadExchangeStreamCaptureMode";
    stream_is_capturing: fn(Handle, *mut c_int) = "cuStreamIsCapturing";
    mem_alloc: fn(*mut u64, usize) = "cuMemAlloc_v2";
    mem_free: fn(u64) = "cuMemFree_v2";
    copy_to_device: fn(u64, *const c_void, usize) = "cuMemcpyHtoD_v2";
    copy_to_host: fn(*mut c_void, u64, usize) = "cuMemcpyDtoH_v2";
    copy_to_host_async: fn(*mut c_void, u64, usize, Handle) = "cuMemcpyDtoHAsync_v2";
    copy_rows_async: fn(*const sys::CUDA_MEMCPY2D_st, Handle) = "cuMemcpy2DAsync_v2";
    stream_synchronize: fn(Handle) = "cuStreamSynchronize";
    stream_create: fn(*mut Handle, c_uint) = "cuStreamCreate";
    begin_capture: fn(Handle, c_int) = "cuStreamBeginCapture_v2";
    end_capture: fn(Handle, *mut Handle) = "cuStreamEndCapture";
    graph_instantiate: fn(*mut Handle, Handle, u64) = "cuGraphInstantiateWithFlags";
    graph_launch: fn(Handle, Handle) = "cuGraphLaunch";
    graph_exec_destroy: fn(Handle) = "cuGraphExecDestroy";
    graph_destroy: fn(Handle) = "cuGraphDestroy";
    peer_can: fn(*mut c_int, c_int, c_int) = "cuDeviceCanAccessPeer";
    peer_enable: fn(Handle, c_uint) = "cuCtxEnablePeerAccess";
    device_uuid: fn(*mut [u8; 16], c_int) = "cuDeviceGetUuid_v2";
    ipc_get: fn(*mut IpcHandle, u64) = "cuIpcGetMemHandle";
    ipc_open: fn(*mut u64, IpcHandle, c_uint) = "cuIpcOpenMemHandle_v2";
    ipc_close: fn(u64) = "cuIpcCloseMemHandle";
    event_create: fn(*mut Handle, c_uint) = "cuEventCreate";
    event_record: fn(Handle, Handle) = "cuEventRecord";
    event_synchronize: fn(Handle) = "cuEventSynchronize";
    event_elapsed: fn(*mut f32, Handle, Handle) = "cuEventElapsedTime";
    event_destroy: fn(Handle) = "cuEventDestroy_v2";
}

/// `CUipcMemHandle`, which is passed by value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// The driver installs the first name. A toolkit's stub has the second, and so has a driver's link for compilers.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
const NO_DEVICE: c_int = 100;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const L2_CACHE: c_int = 38;

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

/// The working driver, or why there is none for this process.
fn usable() -> Result<&'static Ready, NoDevice> {
    match driver() {
        Driver::Ready(_) if current::forks::happened() => Err(NoDevice::Forked(DriverError::forked())),
        Driver::Ready(ready) => Ok(ready),
        Driver::Absent { searched } => Err(NoDevice::Library { searched: searched.clone() }),
        Driver::Unusable { why } => Err(why.clone()),
    }
}

/// A device, by its number in this process.
///
/// # Errors
/// Why there is no driver, no such device, or why it cannot be used here.
pub fn device(ordinal: i32) -> Result<(&'static Ready, &'static Device), NoDevice> {
    let ready = usable()?;
    if let Some(device) = ready.devices.iter().find(|d| d.ordinal == ordinal) {
        return Ok((ready, device));
    }
    Err(match ready.broken.iter().find(|(o, _)| *o == ordinal) {
        Some((_, source)) => NoDevice::Device { ordinal, source: source.clone() },
        None => NoDevice::Ordinal { ordinal, found: ready.devices.iter().map(|d| d.ordinal).collect() },
    })
}

/// The first device that works: what is meant where none is named.
///
/// # Errors
/// Why there is none.
pub fn first() -> Result<&'static Device, NoDevice> {
    Ok(&usable()?.devices[0])
}

fn handle_of(ready: &Ready, ordinal: c_int) -> Result<c_int, DriverError> {
    let mut handle = 0;
    // SAFETY: a plain out-parameter.
    ready.table.check("cuDeviceGet", unsafe { (ready.table.device_get)(&raw mut handle, ordinal) })?;
    Ok(handle)
}

/// What names a device in all processes.
pub(crate) fn uuid(ready: &Ready, ordinal: c_int) -> Result<[u8; 16], DriverError> {
    let (device, mut uuid) = (handle_of(ready, ordinal)?, [0; 16]);
    // SAFETY: a plain out-parameter of the documented size.
    ready.table.check("cuDeviceGetUuid", unsafe { (ready.table.device_uuid)(&raw mut uuid, device) })?;
    Ok(uuid)
}

/// Whether a device can reach the memory of another.
pub(crate) fn can_access(ready: &Ready, ordinal: c_int, peer: c_int) -> Result<bool, DriverError> {
    let (device, peer, mut can) = (handle_of(ready, ordinal)?, handle_of(ready, peer)?, 0);
    // SAFETY: a plain out-parameter.
    let code = unsafe { (ready.table.peer_can)(&raw mut can, device, peer) };
    ready.table.check("cuDeviceCanAccessPeer", code)?;
    Ok(can != 0)
}

/// The version of the driver's kernel module, which the driver API does not tell.
pub(crate) fn kernel_module() -> Option<String> {
    std::fs::read_to_string("/sys/module/nvidia/version").ok().map(|text| text.trim().to_owned())
}

fn probe() -> Driver {
    let mut searched = Vec::new();
    for name in NAMES {
        // SAFETY: the driver's own library; its initialisers are what every CUDA program runs.
        match unsafe { libloading::Library::new(name) } {
            // The loader's own words, which begin with the name, are the source of what the crate says.
            Err(e) => searched.push(e.source().map_or_else(|| format!("{name}: {e}"), ToString::to_string)),
            Ok(library) => {
                let table = Table::load(&library);
                // Never unloaded: the table points into it, and the driver does not survive it.
                std::mem::forget(library);
                return match table.map_err(|symbol| NoDevice::Symbol { symbol }).and_then(list) {
                    Ok(ready) => Driver::Ready(Box::new(ready)),
                    Err(why) => Driver::Unusable { why },
                };
            }
        }
    }
    Driver::Absent { searched }
}

fn list(table: Table) -> Result<Ready, NoDevice> {
    current::forks::watch();
    let (mut version, mut count) = (0, 0);
    let start = |call, code| match table.check(call, code) {
        Err(e) if e.code == NO_DEVICE => Err(NoDevice::None),
        result => result.map_err(NoDevice::Start),
    };
    // SAFETY: plain out-parameters of the documented types.
    unsafe {
        start("cuInit", (table.init)(0))?;
        start("cuDriverGetVersion", (table.driver_version)(&raw mut version))?;
        start("cuDeviceGetCount", (table.device_count)(&raw mut count))?;
    }
    let (mut devices, mut broken) = (Vec::new(), Vec::new());
    for ordinal in 0..count {
        match look_at(&table, ordinal) {
            Ok(device) => devices.push(device),
            Err(e) => broken.push((ordinal, e)),
        }
    }
    match (devices.is_empty(), broken.first()) {
        (true, None) => Err(NoDevice::None),
        (true, Some((ordinal, e))) => Err(NoDevice::Device { ordinal: *ordinal, source: e.clone() }),
        _ => Ok(Ready { version: Toolkit::from_driver(version), devices, broken, table }),
    }
}

fn look_at(table: &Table, ordinal: c_int) -> Result<Device, DriverError> {
    let mut name = [0u8; 256];
    let (mut handle, mut memory, mut major, mut minor, mut cache) = (0, 0, 0, 0, 0);
    // SAFETY: plain out-parameters; `name` is as long as stated.
    unsafe {
        table.check("cuDeviceGet", (table.device_get)(&raw mut handle, ordinal))?;
        table.check("cuDeviceGetName", (table.device_name)(name.as_mut_ptr().cast(), 255, handle))?;
        table.check("cuDeviceTotalMem", (table.device_memory)(&raw mut memory, handle))?;
        table.check("cuDeviceGetAttribute", (table.device_attribute)(&raw mut major, MAJOR, handle))?;
        table.check("cuDeviceGetAttribute", (table.device_attribute)(&raw mut minor, MINOR, handle))?;
        // It only helps measuring.
        if (table.device_attribute)(&raw mut cache, L2_CACHE, handle) != 0 {
            cache = 0;
        }
    }
    let number =
        u16::try_from(major).ok().zip(u16::try_from(minor).ok()).filter(|&(x, y)| (1..1000).contains(&x) && y < 10);
    let Some((major, minor)) = number else {
        return Err(DriverError {
            call: "cuDeviceGetAttribute",
            code: 0,
            name: "an impossible answer".to_owned(),
            text: format!("it says that its compute capability is {major}.{minor}"),
        });
    };
    let name = CStr::from_bytes_until_nul(&name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Device { ordinal, name, arch: Arch(major * 10 + minor), memory: memory as u64, cache: cache.max(0) as u64 })
}
