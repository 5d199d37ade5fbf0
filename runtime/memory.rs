//! Memory for trials: on the host or on a GPU, copied as a whole. Kernels never see who owns it.

use crate::code::{Place, Stream};
use crate::driver::{self, Current, DriverError, Ready, capturing};
use crate::error::Error;
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
    /// If there is no such device; if the driver has no room, or fails; during the capture of a stream, which an
    /// allocation would break.
    pub fn new(place: Place, content: &[u8]) -> Result<Self, Error> {
        let bytes = content.len();
        let kind = match place {
            Place::Host => {
                let mut chunks = vec![Chunk([0; 256]); bytes.div_ceil(256).max(1)];
                // SAFETY: the chunks hold at least as many bytes, and are plain data.
                unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), chunks.as_mut_ptr().cast(), bytes) };
                Kind::Host(chunks)
            }
            Place::Cuda(ordinal) => {
                let (ready, _) = driver::device(ordinal)?;
                let _current = Current::enter(ready, ordinal)?;
                outside_capture(ready, "cuMemAlloc")?;
                let mut address = 0;
                // SAFETY: a plain out-parameter.
                let code = unsafe { (ready.table.mem_alloc)(&raw mut address, bytes.max(1)) };
                ready.table.check("cuMemAlloc", code)?;
                // Owned from here on: a copy that fails leaves nothing allocated.
                let memory = Self { bytes, kind: Kind::Cuda { ready, ordinal, address } };
                if bytes > 0 {
                    // SAFETY: copies into the memory just allocated.
                    let code = unsafe { (ready.table.copy_to_device)(address, content.as_ptr().cast(), bytes) };
                    ready.table.check("cuMemcpyHtoD", code)?;
                }
                return Ok(memory);
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
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let mut content = vec![0; self.bytes];
        match &self.kind {
            // SAFETY: the chunks hold at least as many bytes.
            Kind::Host(chunks) => unsafe {
                std::ptr::copy_nonoverlapping(chunks.as_ptr().cast(), content.as_mut_ptr(), self.bytes);
            },
            Kind::Cuda { ready, ordinal, address } => {
                let _current = Current::enter(ready, *ordinal)?;
                outside_capture(ready, "cuCtxSynchronize")?;
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
/// If there is no such device, or the driver fails.
pub fn stream(place: Place) -> Result<Stream, Error> {
    const NON_BLOCKING: u32 = 1;
    let Place::Cuda(ordinal) = place else { return Ok(Stream::DEFAULT) };
    let (ready, _) = driver::device(ordinal)?;
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
/// What the work or the driver fails with; if there is no such device; during the capture of a stream, which waiting for
/// the device would break.
pub fn time<E: From<Error>>(place: Place, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let Place::Cuda(ordinal) = place else {
        let start = std::time::Instant::now();
        work()?;
        return Ok(start.elapsed().as_secs_f64() * 1e6);
    };
    let (ready, _) = driver::device(ordinal).map_err(Error::from)?;
    let table = &ready.table;
    let check = |call, code| table.check(call, code).map_err(Error::from);
    let _current = Current::enter(ready, ordinal).map_err(Error::from)?;
    outside_capture(ready, "cuEventSynchronize").map_err(Error::from)?;
    let events = [Event::new(ready, ordinal)?, Event::new(ready, ordinal)?];
    let default = std::ptr::null_mut();
    let mut milliseconds = 0f32;
    // SAFETY: plain out-parameters; the events live until the end of this function.
    unsafe {
        check("cuEventRecord", (table.event_record)(events[0].handle, default))?;
        work()?;
        check("cuEventRecord", (table.event_record)(events[1].handle, default))?;
        check("cuEventSynchronize", (table.event_synchronize)(events[1].handle))?;
        let code = (table.event_elapsed)(&raw mut milliseconds, events[0].handle, events[1].handle);
        check("cuEventElapsedTime", code)?;
    }
    Ok(f64::from(milliseconds) * 1e3)
}

/// An event that goes away, also after an error.
pub(crate) struct Event {
    ready: &'static Ready,
    ordinal: i32,
    pub(crate) handle: *mut c_void,
}

impl Event {
    /// The device's context is current.
    pub(crate) fn new(ready: &'static Ready, ordinal: i32) -> Result<Self, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a plain out-parameter.
        ready.table.check("cuEventCreate", unsafe { (ready.table.event_create)(&raw mut handle, 0) })?;
        Ok(Self { ready, ordinal, handle })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_current) = Current::enter(self.ready, self.ordinal) {
            // SAFETY: created by `new`, destroyed once.
            unsafe { (self.ready.table.event_destroy)(self.handle) };
        }
    }
}

/// Refuses what would break the capture of the default stream, or of one that waits for it. Others cannot be seen from
/// here; the driver refuses such calls itself then, unless the thread asked for less.
fn outside_capture(ready: &Ready, call: &'static str) -> Result<(), DriverError> {
    if capturing(ready, std::ptr::null_mut())? { Err(DriverError::during_capture(call)) } else { Ok(()) }
}
