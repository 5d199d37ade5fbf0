//! Parbake as a shared library: the symbols that hosts look up. Their bodies are in `parbake::door`; what each op adds
//! is generated from its `op.toml`.

mod library;

use parbake::Library;
use parbake::door::c::{self, Asked, Failure};
use parbake::door::dlpack::DLTensor;
use parbake::door::tvm_ffi::{self, Any};
use parbake::group::Pool;
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

/// The C ABI that this library has: PARBAKE_ABI of the header that declares it.
#[unsafe(no_mangle)]
pub extern "C" fn parbake_abi() -> c_uint {
    c::ABI
}

/// Lends the process's library.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_default(library: *mut *const Library, error: *mut *mut Failure) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::default(library::default, library, error) }
}

/// Opens a library with its own settings.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_open(
    settings: *const *const c_char,
    count: usize,
    library: *mut *const Library,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::open(library::open_own, settings, count, library, error) }
}

/// Closes a library that was opened.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_close(library: *const Library) {
    // SAFETY: as the caller vouches.
    unsafe { c::close(library::opened(), library) }
}

/// Whether and from where a spec would be served, as JSON.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_supports(
    library: *const Library,
    op: *const c_char,
    values: *const c_char,
    target: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::supports(Asked { library, op, values, target }, json, error) }
}

/// The whole decision about a spec, as JSON.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_explain(
    library: *const Library,
    op: *const c_char,
    values: *const c_char,
    target: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::explain(Asked { library, op, values, target }, json, error) }
}

/// Has specs ready, and says what was done as JSON.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_prepare(
    library: *const Library,
    op: *const c_char,
    values: *const c_char,
    target: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::prepare(Asked { library, op, values, target }, json, error) }
}

/// The number of a snippet.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_snippet(
    library: *const Library,
    op: *const c_char,
    snippet: *const c_char,
    number: *mut i32,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::snippet(library, op, snippet, number, error) }
}

/// Makes the pool of a rank.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_pool_new(
    device: i32,
    bytes: usize,
    memory: *mut *mut c_void,
    pool: *mut *mut Pool,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::pool_new(device, bytes, memory, pool, error) }
}

/// What other ranks open a pool by.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_pool_handle(
    pool: *const Pool,
    handle: *mut c_void,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::pool_handle(pool, handle, error) }
}

/// Opens the pools of all ranks.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_pool_open(
    pool: *mut Pool,
    rank: i32,
    ranks: i32,
    handles: *const c_void,
    addresses: *mut i64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::pool_open(pool, rank, ranks, handles, addresses, error) }
}

/// Frees a pool.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_pool_free(pool: *mut Pool) {
    // SAFETY: as the caller vouches.
    unsafe { c::pool_free(pool) }
}

/// The kind of an error.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_error_kind(error: *const Failure) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { c::error_kind(error) }
}

/// The code of an error.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_error_code(error: *const Failure) -> *const c_char {
    // SAFETY: as the caller vouches.
    unsafe { c::error_code(error) }
}

/// The text of an error.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_error_message(error: *const Failure) -> *const c_char {
    // SAFETY: as the caller vouches.
    unsafe { c::error_message(error) }
}

/// Frees an error.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_error_free(error: *mut Failure) {
    // SAFETY: as the caller vouches.
    unsafe { c::error_free(error) }
}

/// Frees a text that a function gave.
///
/// # Safety
/// As `parbake.h` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parbake_text_free(text: *mut c_char) {
    // SAFETY: as the caller vouches.
    unsafe { c::text_free(text) }
}

/// The level of the API log, for all libraries of this process.
#[unsafe(no_mangle)]
pub extern "C" fn parbake_set_log_level(level: c_int) -> c_int {
    c::set_log_level(level)
}

/// The symbol of an op in `parbake.h`.
macro_rules! c_abi {
    ($place:literal, $call:ident($($tensor:ident),*; $($scalar:ident: $kind:ty),*)) => {
        /// An op, as C calls it.
        ///
        /// # Safety
        /// As `parbake.h` asks.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $call(
            library: *const Library,
            stream: *mut c_void,
            target: *const c_char,
            $($tensor: *const DLTensor,)*
            $($scalar: $kind,)*
            error: *mut *mut Failure,
        ) -> c_int {
            // SAFETY: as the caller vouches.
            unsafe { c::call($place, library, stream, target, [$($tensor),*], [$(Number::number($scalar)),*], error) }
        }
    };
}

/// A scalar as C hands it over.
trait Number {
    /// As ops take it.
    fn number(self) -> f64;
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for i32 {
    fn number(self) -> f64 {
        f64::from(self)
    }
}

impl Number for i64 {
    /// What a double does not hold is out of every op's range, also after rounding.
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
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
