//! Parbake as a shared library: the symbols that hosts look up. Their bodies are in `parbake::door`; what each op adds
//! is generated from its `op.toml`.

mod library;

use parbake::door::tvm_ffi::{self, Any};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// The library's version, NUL-terminated, valid for the life of the process.
#[unsafe(no_mangle)]
pub extern "C" fn parbake_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The launch ABI: images that were made for another one are refused.
#[unsafe(no_mangle)]
pub extern "C" fn parbake_launch_abi() -> c_uint {
    parbake::model::LAUNCH_ABI
}

/// The three symbols that TVM FFI looks up for a function.
macro_rules! tvm_ffi {
    ($place:literal, $call:ident, $metadata:ident = $types:literal, $doc:ident = $words:literal $(,)?) => {
        /// An op, as TVM FFI calls it.
        ///
        /// # Safety
        /// As TVM FFI promises: `count` arguments, and room for a result.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $call(_: *mut c_void, args: *const Any, count: i32, result: *mut Any) -> c_int {
            // SAFETY: as the caller vouches.
            unsafe { tvm_ffi::call(library::default, $place, args, count, result) }
        }
        /// Its types.
        ///
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $metadata(_: *mut c_void, _: *const Any, _: i32, result: *mut Any) -> c_int {
            // SAFETY: as the caller vouches.
            unsafe { tvm_ffi::give_text($types, result) }
        }
        /// Its documentation.
        ///
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $doc(_: *mut c_void, _: *const Any, _: i32, result: *mut Any) -> c_int {
            // SAFETY: as the caller vouches.
            unsafe { tvm_ffi::give_text($words, result) }
        }
    };
}

include!("../generated-manifest/exports.rs");
