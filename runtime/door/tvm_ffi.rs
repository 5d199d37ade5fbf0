//! TVM FFI: the typed calling convention that Python, PyTorch, JAX and C++ hosts share. Own structs of its stable part;
//! nothing is linked. The few functions of the host that are called are looked up in the process, where importing
//! `tvm_ffi` put them; until then there are none, and they are looked up again.
//!
//! Arguments come in the order of `op.toml`: outputs, inputs, scalars; then, if given, the target as text. Scalars with a
//! default may be left out from the end, or be None. For an op with an axis that is open to snippets, name and value of
//! each of the snippet's parameters may follow the target.

use super::dlpack::{CUDA, DLDataType, DLDevice, DLTensor};
use super::{Given, MAX_SCALARS, MAX_TENSORS, Target, guarded};
use crate::check::Wrong;
use crate::code::Stream;
use crate::error::Error;
use crate::library::Library;
use parbake_model::op::{Op, ScalarType};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `TVMFFIAny`'s value.
#[repr(C)]
#[derive(Clone, Copy)]
pub union AnyValue {
    /// Of an integer or a boolean.
    pub int: i64,
    /// Of a float.
    pub float: f64,
    /// Of an object, a tensor or a text.
    pub pointer: *mut c_void,
    /// Of a short text.
    pub bytes: [u8; 8],
    /// Of an element type.
    pub dtype: DLDataType,
    /// Of a device.
    pub device: DLDevice,
}

/// `TVMFFIAny`: an argument or a result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Any {
    /// What it is.
    pub type_index: i32,
    /// Bytes of a short text.
    pub small_len: u32,
    /// Its value.
    pub value: AnyValue,
}

/// `TVMFFIByteArray`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByteArray {
    /// The first byte.
    pub data: *const u8,
    /// How many.
    pub size: usize,
}

const _: () = assert!(size_of::<Any>() == 16 && align_of::<Any>() == 8 && size_of::<ByteArray>() == 16);

/// The numbers of types that are read or written here.
pub mod index {
    /// Nothing.
    pub const NONE: i32 = 0;
    /// An integer.
    pub const INT: i32 = 1;
    /// A boolean.
    pub const BOOL: i32 = 2;
    /// A float.
    pub const FLOAT: i32 = 3;
    /// A tensor that is lent for the call.
    pub const DLTENSOR: i32 = 7;
    /// A NUL-terminated text.
    pub const RAW_STR: i32 = 8;
    /// A text of at most seven bytes.
    pub const SMALL_STR: i32 = 11;
    /// A text object.
    pub const STR: i32 = 65;
    /// A tensor object.
    pub const TENSOR: i32 = 70;
}

/// Bytes of the header that every object begins with (`TVMFFIObject`).
pub const OBJECT_HEADER: usize = 24;

/// A function of the host, found when it is first needed.
struct HostFunction {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl HostFunction {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }
    #[inline]
    fn get(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.look_up() } else { Some(found) }
    }
    #[cold]
    fn look_up(&self) -> Option<*mut c_void> {
        // SAFETY: a NUL-terminated name, looked up in what the process has loaded.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

static SET_ERROR: HostFunction = HostFunction::new(c"TVMFFIErrorSetRaisedFromCStr");
static GET_STREAM: HostFunction = HostFunction::new(c"TVMFFIEnvGetStream");
static NEW_STRING: HostFunction = HostFunction::new(c"TVMFFIStringFromByteArray");

/// Tells the host of an error; without a host there is nobody to tell.
fn set_error(kind: &CStr, text: String) {
    let Some(function) = SET_ERROR.get() else { return };
    let text = CString::new(text.replace('\0', "?")).expect("bug: NUL bytes were just replaced");
    // SAFETY: the host documents this signature; both texts outlive the call, which copies them.
    unsafe {
        let function: unsafe extern "C" fn(*const c_char, *const c_char) = std::mem::transmute(function);
        function(kind.as_ptr(), text.as_ptr());
    }
}

/// The stream that the caller's framework uses on a CUDA device.
fn stream(ordinal: i32) -> Stream {
    let Some(function) = GET_STREAM.get() else { return Stream::DEFAULT };
    // SAFETY: the host documents this signature.
    unsafe {
        let function: unsafe extern "C" fn(i32, i32) -> *mut c_void = std::mem::transmute(function);
        Stream(function(CUDA, ordinal))
    }
}

/// Calls an op of the library that `library` gives. The result is None; −1 says that an error was handed to the host.
///
/// # Safety
/// As TVM FFI promises for a call: `args` points at `count` arguments, `result` at room for one; tensors are valid on
/// their device until the framework's stream has passed the work.
pub unsafe fn call(
    library: impl FnOnce() -> Result<&'static Library, Error>,
    built_in: usize,
    args: *const Any,
    count: i32,
    result: *mut Any,
) -> c_int {
    // No unwinding crosses the border to C.
    let outcome = guarded(|| {
        let library = library()?;
        let args = match usize::try_from(count) {
            // SAFETY: the caller vouches for the arguments.
            Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(args, count) },
            _ => &[],
        };
        // SAFETY: as the caller vouches.
        unsafe { call_op(library, built_in, args) }
    });
    match outcome {
        Ok(()) => {
            // SAFETY: the caller gives room for a result.
            unsafe { result.write(Any { type_index: index::NONE, small_len: 0, value: AnyValue { int: 0 } }) };
            0
        }
        Err(fault) => {
            set_error(fault.kind.name(), fault.message);
            -1
        }
    }
}

/// # Safety
/// As [`call`].
unsafe fn call_op(library: &Library, built_in: usize, args: &[Any]) -> Result<(), Error> {
    let op = library.built_in(built_in)?;
    let def = library.definition(op);
    let (tensors, scalars) = (def.tensors.len(), def.scalars.len());
    let mut wrong = Wrong::default();
    let required = tensors + def.scalars.iter().take_while(|s| s.default.is_none()).count();
    let (args, named) = args.split_at(args.len().min(tensors + scalars + 1));
    let odd = named.len() % 2 == 1 || !named.is_empty() && def.axes.iter().all(|a| a.open.is_none());
    if args.len() < required || odd || tensors > MAX_TENSORS || scalars > MAX_SCALARS {
        wrong.add("call", "count", signature(def), format!("{} arguments", args.len() + named.len()));
        return wrong.check(library, def);
    }
    let mut given = [None; MAX_TENSORS];
    for ((place, arg), declared) in given.iter_mut().zip(args).zip(&def.tensors) {
        // SAFETY: the types are the ones that TVM FFI documents for these numbers.
        *place = unsafe { tensor(arg) };
        if place.is_none() && !(declared.optional && arg.type_index == index::NONE) {
            let expected = if declared.optional { "a tensor or None" } else { "a tensor" };
            wrong.add(&declared.name, "type", expected, name_of(arg));
        }
    }
    let mut values = [0.0; MAX_SCALARS];
    for (i, (value, declared)) in values.iter_mut().zip(&def.scalars).enumerate() {
        let arg = args.get(tensors + i).filter(|a| a.type_index != index::NONE);
        let boolean = declared.kind == ScalarType::Bool;
        // SAFETY: the union's field is the one of that number.
        match (arg.map(|a| (a, unsafe { number(a, boolean) })), declared.default) {
            (Some((_, Some(number))), _) => *value = number,
            (Some((arg, None)), _) => wrong.add(&declared.name, "type", "a number", name_of(arg)),
            (None, Some(default)) => *value = default,
            (None, None) => wrong.add(&declared.name, "type", "a number", "nothing"),
        }
    }
    let target = match args.get(tensors + scalars) {
        None => Target::Auto,
        Some(arg) if arg.type_index == index::NONE => Target::Auto,
        // SAFETY: as above.
        Some(arg) => match unsafe { text(arg) } {
            Some(text) => Target::parse(text).unwrap_or_else(|| {
                wrong.add("target", "value", "auto or host", text);
                Target::Auto
            }),
            None => {
                wrong.add("target", "type", "a text", name_of(arg));
                Target::Auto
            }
        },
    };
    let mut parameters = Vec::new();
    for pair in named.chunks_exact(2) {
        // SAFETY: the types are the ones that TVM FFI documents for these numbers.
        let (name, found) = unsafe { (text(&pair[0]), (tensor(&pair[1]), number(&pair[1], false))) };
        let name = name.unwrap_or("a parameter");
        match found {
            (Some(tensor), _) => parameters.push((name, Given::Tensor(tensor))),
            (_, Some(number)) => parameters.push((name, Given::Number(number))),
            _ => wrong.add(name, "type", "a tensor or a number", name_of(&pair[1])),
        }
    }
    wrong.check(library, def)?;
    // SAFETY: as the caller vouches.
    unsafe { super::call(library, op, (&given[..tensors], &values[..scalars]), &parameters, target, stream) }.map(drop)
}

#[inline]
unsafe fn tensor(arg: &Any) -> Option<&DLTensor> {
    // SAFETY: a lent tensor is a pointer to its descriptor; a tensor object has it behind its header.
    unsafe {
        match arg.type_index {
            index::DLTENSOR => arg.value.pointer.cast::<DLTensor>().as_ref(),
            index::TENSOR => arg.value.pointer.byte_add(OBJECT_HEADER).cast::<DLTensor>().as_ref(),
            _ => None,
        }
    }
}

#[inline]
unsafe fn number(arg: &Any, boolean: bool) -> Option<f64> {
    // SAFETY: the field is the one of the type's number.
    unsafe {
        match arg.type_index {
            index::FLOAT => Some(arg.value.float),
            index::INT => Some(arg.value.int as f64),
            index::BOOL if boolean => Some(arg.value.int as f64),
            _ => None,
        }
    }
}

unsafe fn text(arg: &Any) -> Option<&str> {
    // SAFETY: the field is the one of the type's number; a text object has pointer and length behind its header.
    let bytes = unsafe {
        match arg.type_index {
            index::SMALL_STR => arg.value.bytes.get(..arg.small_len as usize)?,
            index::RAW_STR => CStr::from_ptr(arg.value.pointer.cast()).to_bytes(),
            index::STR => {
                let inner = *arg.value.pointer.byte_add(OBJECT_HEADER).cast::<ByteArray>();
                std::slice::from_raw_parts(inner.data, inner.size)
            }
            _ => return None,
        }
    };
    std::str::from_utf8(bytes).ok()
}

/// What an argument is, for a person.
fn name_of(arg: &Any) -> String {
    match arg.type_index {
        index::NONE => "None".to_owned(),
        index::INT => "an integer".to_owned(),
        index::BOOL => "a boolean".to_owned(),
        index::FLOAT => "a float".to_owned(),
        index::DLTENSOR | index::TENSOR => "a tensor".to_owned(),
        index::RAW_STR | index::SMALL_STR | index::STR => "a text".to_owned(),
        other => format!("an object of TVM FFI's type {other}"),
    }
}

fn signature(def: &Op) -> String {
    let tensors = def.tensors.iter().map(|t| t.name.clone());
    let scalars = def.scalars.iter().map(|s| match s.default {
        Some(default) => format!("{}={default}", s.name),
        None => s.name.clone(),
    });
    tensors.chain(scalars).chain(["target=None".to_owned()]).collect::<Vec<_>>().join(", ")
}

/// Gives a text as a result: what the metadata and doc symbols do.
///
/// # Safety
/// `result` points at room for one.
pub unsafe fn give_text(text: &str, result: *mut Any) -> c_int {
    let Some(function) = NEW_STRING.get() else { return -1 };
    let bytes = ByteArray { data: text.as_ptr(), size: text.len() };
    // SAFETY: the host documents this signature, and copies the text.
    unsafe {
        let function: unsafe extern "C" fn(*const ByteArray, *mut Any) -> c_int = std::mem::transmute(function);
        function(&raw const bytes, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_host_an_error_is_a_status_and_no_crash() {
        let mut result = Any { type_index: 9, small_len: 0, value: AnyValue { int: 0 } };
        let fail = || Err(Error::NoSources { uri: "x".into() });
        // SAFETY: no argument, and room for a result.
        assert_eq!(unsafe { call(fail, 0, std::ptr::null(), 0, &raw mut result) }, -1);
        // SAFETY: as above.
        assert_eq!(unsafe { call(|| panic!("deliberate"), 0, std::ptr::null(), 0, &raw mut result) }, -1);
        assert_eq!(result.type_index, 9, "nothing was written");
    }

    #[test]
    fn texts_are_read_in_each_of_their_forms() {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(b"host");
        let small = Any { type_index: index::SMALL_STR, small_len: 4, value: AnyValue { bytes } };
        let pointer = c"auto".as_ptr().cast_mut().cast();
        let raw = Any { type_index: index::RAW_STR, small_len: 0, value: AnyValue { pointer } };
        #[repr(C)]
        struct Object([u64; 3], ByteArray);
        let mut object = Object([0; 3], ByteArray { data: b"sm_90a".as_ptr(), size: 6 });
        let pointer = (&raw mut object).cast();
        let whole = Any { type_index: index::STR, small_len: 0, value: AnyValue { pointer } };
        // SAFETY: each is of the type that its number says.
        unsafe {
            assert_eq!((text(&small), text(&raw), text(&whole)), (Some("host"), Some("auto"), Some("sm_90a")));
        }
        let long = Any { small_len: 9, ..small };
        // SAFETY: as above; the length is beyond the bytes.
        assert_eq!(unsafe { text(&long) }, None);
    }
}
