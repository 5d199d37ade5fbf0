//! What AddressSanitizer is told if it is in the process, as it is when the host target's units are compiled with it:
//! around and between the elements of a trial nothing may be touched, by reading neither. Elsewhere nothing happens.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

type Region = unsafe extern "C" fn(*const c_void, usize);

/// What closes a region and what opens it.
fn functions() -> Option<(Region, Region)> {
    static FOUND: OnceLock<Option<(Region, Region)>> = OnceLock::new();
    let find = |name: &CStr| {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: the sanitizer's interface declares both with this type.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Region>(found) })
    };
    *FOUND.get_or_init(|| Some((find(c"__asan_poison_memory_region")?, find(c"__asan_unpoison_memory_region")?)))
}

/// Closes memory but for elements of so many bytes at these places.
///
/// # Safety
/// All of it is the caller's, who opens it again before anybody else gets it.
pub(crate) unsafe fn close(memory: *const c_void, bytes: usize, elements: &[usize], width: usize) {
    let Some((close, open)) = functions() else { return };
    // SAFETY: the elements lie in the memory, which is the caller's.
    unsafe {
        close(memory, bytes);
        elements.iter().for_each(|at| open(memory.byte_add(*at), width));
    }
}

/// Opens all of it.
///
/// # Safety
/// All of it is the caller's.
pub(crate) unsafe fn open(memory: *const c_void, bytes: usize) {
    if let Some((_, open)) = functions() {
        // SAFETY: as the caller says.
        unsafe { open(memory, bytes) };
    }
}
