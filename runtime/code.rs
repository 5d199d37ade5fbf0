//! Loaded code: a function of the driver, or of a shared object for the host target.

use crate::binding::Launch;
use crate::decision::{Decision, Origin};
use crate::driver::{self, Current, DriverError, Handle, Ready, RelaxedCapture, capturing};
use crate::error::Error;
use crate::tensor_map;
use cudarc::driver::sys;
use parbake_model::identity::Spec;
use parbake_model::{Digest, Target, Toolkit};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where work runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// A GPU, by its number in this process.
    Cuda(i32),
    /// The CPU, through the host target.
    Host,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::Host => f.write_str("host"),
        }
    }
}

/// A CUDA stream, as the driver's handle; null is the default stream. Work on the host target ignores it.
#[derive(Clone, Copy, Debug)]
pub struct Stream(pub *mut c_void);

impl Stream {
    /// The default stream.
    pub const DEFAULT: Self = Self(std::ptr::null_mut());
}

/// A kernel that is ready to launch.
#[derive(Debug)]
pub struct Kernel {
    /// Its `extern "C"` name.
    pub entry: String,
    /// The spec's URI.
    pub uri: String,
    /// The spec.
    pub spec: Spec,
    /// What a compiler would have been asked for at its place.
    pub wanted: Target,
    /// How it was found.
    pub decision: Decision,
    /// Where it came from when it was loaded.
    pub origin: Origin,
    /// SHA-256 of the image.
    pub image: Digest,
    /// The identity of the build that the image is of.
    pub build_key: Digest,
    /// The toolkit that compiled it; none for the host target.
    pub toolkit: Option<Toolkit>,
    /// The toolchain and its options; bundles tell them only in their details.
    pub made_by: Option<(String, Vec<String>)>,
    /// What it cost to compile, if it was compiled for this process.
    pub compile_ms: Option<f64>,
    /// What it cost to find and load, without compiling.
    pub load_ms: f64,
    pub(crate) code: Code,
}

#[derive(Debug)]
pub(crate) enum Code {
    Cuda {
        function: Handle,
        ordinal: i32,
        /// The most dynamic shared memory that it may be launched with, in bytes.
        shared: AtomicU32,
    },
    Host {
        entry: HostEntry,
        /// The order of threads.
        schedule: u64,
    },
}

// SAFETY: a function handle may be used from any thread; so may a function of a shared object that is never unloaded.
unsafe impl Send for Code {}
// SAFETY: as above; launches do not change it.
unsafe impl Sync for Code {}

/// The C signature of a host unit's entry: 0 it ran, 1 the kernel broke a rule, 2 the launch is not valid.
pub(crate) type HostEntry = unsafe extern "C" fn(*mut HostLaunch, *const c_void, *mut c_char, usize) -> c_int;

/// `pb_host_launch` of `kernels/host/pb_host.h`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct HostLaunch {
    grid: [u32; 3],
    block: [u32; 3],
    smem: u64,
    cooperative: u32,
    jobs: u32,
    seed: u64,
    stack: u64,
    switches: u64,
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_SHARED: c_int = 8;

/// Gives a function leave for more shared memory than it was given before. What needs none follows from its static shared
/// memory too, so leave is asked for at the first launch with any.
#[cold]
fn raise_shared(ready: &Ready, function: Handle, limit: &AtomicU32, bytes: u32) -> Result<(), DriverError> {
    // Nobody lowers what another thread has just raised.
    static RAISING: Mutex<()> = Mutex::new(());
    let _raising = RAISING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if bytes <= limit.load(Ordering::Relaxed) {
        return Ok(());
    }
    let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    // SAFETY: a function that was loaded; the driver refuses more than the device has.
    let code = unsafe { (ready.table.function_set)(function, MAX_SHARED, wanted) };
    ready.table.check("cuFuncSetAttribute", code)?;
    limit.store(bytes, Ordering::Relaxed);
    Ok(())
}

/// The attribute of a launch in clusters.
fn cluster(blocks: u32) -> sys::CUlaunchAttribute {
    let dimension = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
    // SAFETY: the union is plain data; what is not set is 0.
    let mut value: sys::CUlaunchAttributeValue = unsafe { std::mem::zeroed() };
    value.clusterDim = dimension;
    let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    sys::CUlaunchAttribute { id, pad: [0; 4], value }
}

impl Code {
    /// Hands an image to the driver. Done only when the entry was found and its function is there: the driver reports
    /// success for images that it cannot run.
    pub(crate) fn load_cuda(ready: &Ready, ordinal: i32, image: &[u8], entry: &str) -> Result<Self, DriverError> {
        let table = &ready.table;
        let _current = Current::enter(ready, ordinal)?;
        let _relaxed = RelaxedCapture::enter(ready);
        let name = CString::new(entry).expect("bug: an entry is a C name");
        let null = std::ptr::null_mut;
        let (mut library, mut kernel, mut function) = (null(), null(), null());
        // SAFETY: the image is complete, as its reader has seen, and need not outlive the call; out-parameters are plain.
        unsafe {
            let code = (table.library_load)(
                &raw mut library,
                image.as_ptr().cast(),
                null().cast(),
                null().cast(),
                0,
                null().cast(),
                null().cast(),
                0,
            );
            table.check("cuLibraryLoadData", code)?;
            table.check("cuLibraryGetKernel", (table.library_kernel)(&raw mut kernel, library, name.as_ptr()))?;
            table.check("cuKernelGetFunction", (table.kernel_function)(&raw mut function, kernel))?;
        }
        Ok(Self::Cuda { function, ordinal, shared: AtomicU32::new(0) })
    }

    /// Loads a shared object from memory. What was verified is what runs: no file can change in between.
    pub(crate) fn load_host(image: &[u8], entry: &str, schedule: u64) -> Result<Self, String> {
        unsafe extern "C" {
            fn memfd_create(name: *const c_char, flags: u32) -> c_int;
        }
        const CLOEXEC: u32 = 1;
        // SAFETY: a NUL-terminated name and a documented flag.
        let fd = unsafe { memfd_create(c"parbake-kernel".as_ptr(), CLOEXEC) };
        if fd < 0 {
            return Err(format!("memfd_create: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
        std::io::Write::write_all(&mut file, image).map_err(|e| e.to_string())?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: a unit compiled by our host toolchain; its initialisers are those of its C++ runtime.
        let library = unsafe { libloading::Library::new(&path) }.map_err(|e| e.to_string())?;
        // SAFETY: `PB_KERNEL` gives every host unit an entry of this signature.
        let symbol = unsafe { library.get::<HostEntry>(entry.as_bytes()) }.map_err(|e| e.to_string())?;
        let entry = *symbol;
        // Never unloaded: other threads may be inside. The loader tells libraries apart by path, so the descriptor's
        // number must never be used again: the file stays open.
        std::mem::forget(library);
        let _ = file.into_raw_fd();
        Ok(Self::Host { entry, schedule })
    }
}

/// What says to the driver that all parameters lie in one buffer: `CU_LAUNCH_PARAM_BUFFER_POINTER` and its kin.
struct WholeBuffer([*mut c_void; 5]);

impl WholeBuffer {
    fn of(buffer: *mut c_void, size: &mut usize) -> Self {
        const POINTER: *mut c_void = std::ptr::without_provenance_mut(1);
        const SIZE: *mut c_void = std::ptr::without_provenance_mut(2);
        const END: *mut c_void = std::ptr::null_mut();
        Self([POINTER, buffer, SIZE, std::ptr::from_mut(size).cast(), END])
    }
}

impl Kernel {
    /// Launches. A grid without blocks is no work.
    ///
    /// # Safety
    /// The pointers in the parameters are valid for what the kernel reads and writes, until the stream has passed it.
    pub(crate) unsafe fn launch(&self, launch: &mut Launch, stream: Stream) -> Result<(), Error> {
        if launch.grid.contains(&0) {
            return Ok(());
        }
        match &self.code {
            Code::Cuda { function, ordinal, shared } => {
                let ready = driver::ready().expect("bug: a loaded kernel without a driver");
                let _current = Current::enter(ready, *ordinal)?;
                if launch.shared > shared.load(Ordering::Relaxed) {
                    raise_shared(ready, *function, shared, launch.shared)?;
                }
                if launch.maps > 0 {
                    tensor_map::encode(ready, &mut launch.params.0, launch.maps)?;
                    // A launch that is made again has them.
                    launch.maps = 0;
                }
                let mut attributes = [cluster(launch.cluster)];
                let count = u32::from(launch.cluster > 1);
                let config = sys::CUlaunchConfig {
                    gridDimX: launch.grid[0],
                    gridDimY: launch.grid[1],
                    gridDimZ: launch.grid[2],
                    blockDimX: launch.block[0],
                    blockDimY: launch.block[1],
                    blockDimZ: launch.block[2],
                    sharedMemBytes: launch.shared,
                    hStream: stream.0.cast(),
                    attrs: if count == 0 { std::ptr::null_mut() } else { attributes.as_mut_ptr() },
                    numAttrs: count,
                };
                let buffer = launch.params.0.as_mut_ptr().cast::<c_void>();
                let mut params = [buffer];
                let mut whole = WholeBuffer::of(buffer, &mut launch.plain);
                let (params, extra) = match launch.plain {
                    0 => (params.as_mut_ptr(), std::ptr::null_mut()),
                    _ => (std::ptr::null_mut(), whole.0.as_mut_ptr()),
                };
                // SAFETY: the function takes one struct by value, or parameters that lie as its fields do; the driver
                // copies what `params` or `extra` points at.
                let code = unsafe { (ready.table.launch)(&raw const config, *function, params, extra) };
                Ok(ready.table.check("cuLaunchKernelEx", code)?)
            }
            Code::Host { entry, schedule } => {
                assert!(launch.cluster <= 1, "bug: `{}` was launched in clusters on the host target", self.uri);
                let jobs = processors();
                let mut host = HostLaunch {
                    grid: launch.grid,
                    block: launch.block,
                    smem: u64::from(launch.shared),
                    jobs,
                    seed: *schedule,
                    ..HostLaunch::default()
                };
                let mut error = [0u8; 2048];
                // SAFETY: the caller vouches for the pointers; the struct is the one that the unit was compiled with.
                let rc = unsafe {
                    entry(&raw mut host, launch.params.0.as_ptr().cast(), error.as_mut_ptr().cast(), error.len())
                };
                if rc == 0 {
                    return Ok(());
                }
                let why =
                    CStr::from_bytes_until_nul(&error).map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
                Err(Error::Host { uri: self.uri.clone(), why })
            }
        }
    }
}

impl Kernel {
    /// Says that a kernel was compiled while a stream was being captured. Only whoever compiled asks: a kernel that was
    /// there pays nothing.
    pub(crate) fn warn_if_captured(&self, op: &str, stream: Stream) {
        let Code::Cuda { ordinal, .. } = self.code else { return };
        let captured = driver::device(ordinal).is_ok_and(|(ready, _)| {
            Current::enter(ready, ordinal).and_then(|_current| capturing(ready, stream.0)).unwrap_or(false)
        });
        if captured {
            tracing::warn!(
                op,
                uri = self.uri,
                compile_ms = self.compile_ms,
                "compiled during graph capture; call `prepare(…)` for this op before the capture begins"
            );
        }
    }
}

/// Processors at hand; asking the system reads files, so it is asked once.
fn processors() -> u32 {
    static COUNT: once_cell::sync::Lazy<u32> =
        once_cell::sync::Lazy::new(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32));
    *COUNT
}
