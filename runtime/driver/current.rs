//! The context that is current, fork and capture: what a thread's state means for a driver call.

use super::{DriverError, Handle, Ready, Table};
use std::ffi::{c_int, c_void};

/// Makes a device's primary context current, and restores what was current when dropped.
pub(crate) struct Current<'a> {
    table: &'a Table,
    restore: Option<Handle>,
}

impl<'a> Current<'a> {
    pub(crate) fn enter(ready: &'a Ready, ordinal: i32) -> Result<Self, DriverError> {
        let table = &ready.table;
        if forks::happened() {
            return Err(DriverError::forked());
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
pub(crate) fn primary(ready: &Ready, ordinal: i32) -> Result<Handle, DriverError> {
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

/// Lets this thread load code while a stream is being captured, and gives it back the mode that it had.
pub(crate) struct RelaxedCapture<'a> {
    table: &'a Table,
    before: Option<c_int>,
}

impl<'a> RelaxedCapture<'a> {
    pub(crate) fn enter(ready: &'a Ready) -> Self {
        const RELAXED: c_int = 2;
        let mut mode = RELAXED;
        // SAFETY: exchanges a plain value.
        let code = unsafe { (ready.table.capture_mode)(&raw mut mode) };
        // A call that failed has exchanged nothing: there is no mode to give back.
        Self { table: &ready.table, before: (code == 0).then_some(mode) }
    }
}

impl Drop for RelaxedCapture<'_> {
    fn drop(&mut self) {
        if let Some(mut before) = self.before {
            // SAFETY: gives back the value that was taken.
            unsafe { (self.table.capture_mode)(&raw mut before) };
        }
    }
}

/// Whether work of a stream is being captured into a graph; the context of its device is current. For the default
/// stream it is also true while another stream that waits for it is captured.
pub(crate) fn capturing(ready: &Ready, stream: Handle) -> Result<bool, DriverError> {
    const IMPLICIT: c_int = 906;
    let mut status = 0;
    // SAFETY: a plain out-parameter, and a stream that the caller vouches for.
    match unsafe { (ready.table.stream_is_capturing)(stream, &raw mut status) } {
        IMPLICIT => Ok(true),
        code => ready.table.check("cuStreamIsCapturing", code).map(|()| status != 0),
    }
}

/// Whether this process is a fork of one that had initialised the driver. The driver's state does not survive a fork, and using it
/// hangs or corrupts; asking for the process number at each launch would be a system call.
pub(super) mod forks {
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
    pub(in crate::driver) fn watch() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler only stores to an atomic, which is allowed between fork and exec.
            let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
        });
    }

    pub(in crate::driver) fn happened() -> bool {
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
