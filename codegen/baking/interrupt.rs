//! Being asked to end: Ctrl-C, or a scheduler that takes the machine back.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP set what this gives, once each: the second of a kind ends the process at once.
pub fn listen() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero `sigaction` is one without flags and with an empty mask; the handler only stores to an
        // atomic, which may be done at any time.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ask as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    &ASKED
}
