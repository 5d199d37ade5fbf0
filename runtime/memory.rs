//! Memory for trials: on the host or on a GPU, copied as a whole. Kernels never see who owns it.

use crate::code::{Place, Stream};
use crate::driver::{self, Current, DriverError, Ready};
use std::ffi::c_void;

#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Chunk([u8; 256]);

/// Bytes at a place, aligned to 256.
pub struct Memory {
    bytes: usize,
    kind: Kind,
}

enum Kind {
    Host(Vec<Chunk>),
    Cuda { ready: &'static Ready, ordinal: i32, address: u64 },
}

impl Memory {
    /// Copies bytes to a place.
    ///
    /// # Errors
    /// If the driver has no room, or fails.
    ///
    /// # Panics
    /// If the place is a GPU and there is no driver; whoever names a GPU has seen one.
    pub fn new(place: Place, content: &[u8]) -> Result<Self, DriverError> {
        let bytes = content.len();
        let kind = match place {
            Place::Host => {
                let mut chunks = vec![Chunk([0; 256]); bytes.div_ceil(256).max(1)];
                // SAFETY: the chunks hold at least as many bytes, and are plain data.
                unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), chunks.as_mut_ptr().cast(), bytes) };
                Kind::Host(chunks)
            }
            Place::Cuda(ordinal) => {
                let ready = driver::ready().expect("bug: device memory without a driver");
                let _current = Current::enter(ready, ordinal)?;
                let mut address = 0;
                // SAFETY: a plain out-parameter, then a copy into the memory just allocated.
                unsafe {
                    ready.table.check("cuMemAlloc", (ready.table.mem_alloc)(&raw mut address, bytes.max(1)))?;
                    if bytes > 0 {
                        let code = (ready.table.copy_to_device)(address, content.as_ptr().cast(), bytes);
                        ready.table.check("cuMemcpyHtoD", code)?;
                    }
                }
                Kind::Cuda { ready, ordinal, address }
            }
        };
        Ok(Self { bytes, kind })
    }

    /// The first byte, as kernels see it.
    pub fn pointer(&mut self) -> *mut c_void {
        match &mut self.kind {
            Kind::Host(chunks) => chunks.as_mut_ptr().cast(),
            Kind::Cuda { address, .. } => *address as *mut c_void,
        }
    }

    /// Copies everything back, after all work on the device is done.
    ///
    /// # Errors
    /// If the driver fails: an error of a kernel shows here.
    pub fn read(&self) -> Result<Vec<u8>, DriverError> {
        let mut content = vec![0; self.bytes];
        match &self.kind {
            // SAFETY: the chunks hold at least as many bytes.
            Kind::Host(chunks) => unsafe {
                std::ptr::copy_nonoverlapping(chunks.as_ptr().cast(), content.as_mut_ptr(), self.bytes);
            },
            Kind::Cuda { ready, ordinal, address } => {
                let _current = Current::enter(ready, *ordinal)?;
                // SAFETY: both sides are as long as stated.
                unsafe {
                    ready.table.check("cuCtxSynchronize", (ready.table.synchronize)())?;
                    let code = (ready.table.copy_to_host)(content.as_mut_ptr().cast(), *address, self.bytes);
                    ready.table.check("cuMemcpyDtoH", code)?;
                }
            }
        }
        Ok(content)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Kind::Cuda { ready, ordinal, address } = &self.kind
            && let Ok(_current) = Current::enter(ready, *ordinal)
        {
            // SAFETY: allocated by `new`, freed once.
            unsafe { (ready.table.mem_free)(*address) };
        }
    }
}

/// A stream that does not wait for the default one, as servers use; the default stream elsewhere. It lives as long as
/// the process: no driver call is made at exit.
///
/// # Errors
/// If the driver fails.
pub fn stream(place: Place) -> Result<Stream, DriverError> {
    const NON_BLOCKING: u32 = 1;
    let Place::Cuda(ordinal) = place else { return Ok(Stream::DEFAULT) };
    let ready = driver::ready().expect("bug: a stream without a driver");
    let _current = Current::enter(ready, ordinal)?;
    let mut stream = std::ptr::null_mut();
    // SAFETY: a plain out-parameter.
    let code = unsafe { (ready.table.stream_create)(&raw mut stream, NON_BLOCKING) };
    ready.table.check("cuStreamCreate", code)?;
    Ok(Stream(stream))
}

/// Times work on a GPU's default stream between two events; elsewhere by the clock. Gives microseconds.
///
/// # Errors
/// What the work or the driver fails with.
pub fn time<E: From<DriverError>>(place: Place, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let Place::Cuda(ordinal) = place else {
        let start = std::time::Instant::now();
        work()?;
        return Ok(start.elapsed().as_secs_f64() * 1e6);
    };
    let ready = driver::ready().expect("bug: device time without a driver");
    let table = &ready.table;
    let _current = Current::enter(ready, ordinal)?;
    let mut events = [std::ptr::null_mut(); 2];
    let default = std::ptr::null_mut();
    let mut milliseconds = 0f32;
    // SAFETY: plain out-parameters; events are created before they are used and destroyed once.
    unsafe {
        table.check("cuEventCreate", (table.event_create)(&raw mut events[0], 0))?;
        table.check("cuEventCreate", (table.event_create)(&raw mut events[1], 0))?;
        table.check("cuEventRecord", (table.event_record)(events[0], default))?;
        work()?;
        table.check("cuEventRecord", (table.event_record)(events[1], default))?;
        table.check("cuEventSynchronize", (table.event_synchronize)(events[1]))?;
        table.check("cuEventElapsedTime", (table.event_elapsed)(&raw mut milliseconds, events[0], events[1]))?;
        (table.event_destroy)(events[0]);
        (table.event_destroy)(events[1]);
    }
    Ok(f64::from(milliseconds) * 1e3)
}
