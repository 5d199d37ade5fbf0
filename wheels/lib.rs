//! The C door of Parbake, as a shared library: what a host asks before it calls anything else.

use std::ffi::{c_char, c_uint};

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
