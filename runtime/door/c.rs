//! The C ABI: what `parbake.h` declares. Results are numbers, 0 for done; what went wrong is an object that the caller
//! reads and frees. No panic and no Rust type crosses the border.

use super::dlpack::DLTensor;
use super::{Fault, Kind, MAX_SCALARS, MAX_TENSORS, Target, Wrong, guarded};
use crate::code::{Place, Stream};
use crate::driver;
use crate::error::Error;
use crate::goal::Goal;
use crate::group::{HANDLE_BYTES, MAX_RANKS, Pool};
use crate::library::{Library, OpId};
use crate::prepare::Site;
use parbake_model::Target as ModelTarget;
use parbake_model::glob::choose;
use parbake_model::identity::Spec;
use parbake_model::report::{Class, Report};
use parbake_model::settings::{Config, SETTINGS, nearest};
use parbake_model::snippet::Snippet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use parbake_model::C_ABI as ABI;

/// An argument of a function in `parbake.h` that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadCall {
    /// The function: `parbake_open`.
    pub function: String,
    /// The argument.
    pub argument: &'static str,
    /// What was expected.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl BadCall {
    pub(crate) fn report(&self) -> Report {
        Report::new("PB-2150", Class::Usage, format!("{}: an argument cannot be used; nothing was done", self.function))
            .with(self.argument, format!("expected {}, got {}", self.expected, self.got))
            .help("parbake.h says what each function takes")
    }
}

/// `parbake_error`: what went wrong, with texts that live as long as it.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    code: CString,
    message: CString,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self { kind: fault.kind, code: text(fault.code), message: text(fault.message) }
    }
}

impl Kind {
    /// Its number in `parbake.h`.
    #[must_use]
    pub fn number(self) -> c_int {
        match self {
            Self::Type => 1,
            Self::Value => 2,
            Self::NotImplemented => 3,
            Self::NotCovered => 4,
            Self::Other => 5,
        }
    }
}

/// A text without NUL bytes.
fn text(words: impl Into<String>) -> CString {
    CString::new(words.into().replace('\0', "?")).expect("bug: NUL bytes were just replaced")
}

/// Runs a body; whatever goes wrong becomes the error object, and the number of its kind.
///
/// # Safety
/// `error` is null or points at room for a pointer.
unsafe fn guard(error: *mut *mut Failure, body: impl FnOnce() -> Result<(), Error>) -> c_int {
    let failure = guarded(body).err().map(Failure::from);
    let number = failure.as_ref().map_or(0, |f| f.kind.number());
    if !error.is_null() {
        let object = failure.map_or(std::ptr::null_mut(), |f| Box::into_raw(Box::new(f)));
        // SAFETY: the caller gives room for a pointer.
        unsafe { error.write(object) };
    }
    number
}

/// Names the function that an argument is wrong of.
#[derive(Clone, Copy)]
struct Function(&'static str);

impl Function {
    fn bad(self, argument: &'static str, expected: impl Into<String>, got: impl Into<String>) -> Error {
        let function = self.0.to_owned();
        Error::BadCall(BadCall { function, argument, expected: expected.into(), got: got.into() })
    }
    /// # Safety
    /// `pointer` is null or a NUL-terminated text.
    unsafe fn text<'a>(self, argument: &'static str, pointer: *const c_char) -> Result<&'a str, Error> {
        if pointer.is_null() {
            return Err(self.bad(argument, "a text", "a null pointer"));
        }
        // SAFETY: as the caller vouches.
        let bytes = unsafe { CStr::from_ptr(pointer) };
        bytes.to_str().map_err(|_| self.bad(argument, "UTF-8", bytes.to_string_lossy()))
    }
}

/// Calls an op: `parbake_<op>`.
///
/// # Safety
/// As `parbake.h` asks: `library` is null or open, `target` null or a NUL-terminated text, each tensor null or a complete
/// descriptor of valid memory until the stream has passed the work, `error` null or room for a pointer.
#[inline]
pub unsafe fn call<const T: usize, const S: usize>(
    built_in: usize,
    library: *const Library,
    stream: *mut c_void,
    target: *const c_char,
    tensors: [*const DLTensor; T],
    scalars: [f64; S],
    error: *mut *mut Failure,
) -> c_int {
    const { assert!(T <= MAX_TENSORS && S <= MAX_SCALARS) };
    // SAFETY: as the caller vouches.
    unsafe {
        guard(error, || {
            let library = library.as_ref().ok_or_else(|| {
                let op = crate::library::built_in_name(built_in);
                Error::BadCall(BadCall {
                    function: format!("parbake_{op}"),
                    argument: "library",
                    expected: "an open library".to_owned(),
                    got: "a null pointer".to_owned(),
                })
            })?;
            let op = library.built_in(built_in)?;
            let def = library.definition(op);
            let mut wrong = Wrong::default();
            if def.tensors.len() != T || def.scalars.len() != S {
                wrong.add(
                    "call",
                    "count",
                    format!("{} tensors and {} scalars", def.tensors.len(), def.scalars.len()),
                    format!("{T} and {S}"),
                );
                return wrong.check(library, def);
            }
            for (tensor, declared) in tensors.iter().zip(&def.tensors) {
                if tensor.is_null() && !declared.optional {
                    wrong.add(&declared.name, "type", "a tensor", "a null pointer");
                }
            }
            let target = match target.is_null() {
                true => Target::Auto,
                false => {
                    let text = CStr::from_ptr(target).to_string_lossy();
                    Target::parse(&text).unwrap_or_else(|| {
                        wrong.add("target", "value", "auto or host", text);
                        Target::Auto
                    })
                }
            };
            wrong.check(library, def)?;
            let tensors = tensors.map(|t| t.as_ref());
            super::call(library, op, (&tensors, &scalars), &[], target, |_| Stream(stream)).map(drop)
        })
    }
}

/// `parbake_default`: lends the process's library.
///
/// # Safety
/// Both pointers are null or room for a pointer.
pub unsafe fn default(
    open: impl FnOnce() -> Result<&'static Library, Error>,
    library: *mut *const Library,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        give(Function("parbake_default"), "library", std::ptr::null(), library, error, || {
            open().map(std::ptr::from_ref)
        })
    }
}

/// `parbake_open`: a library with its own settings. The environment gives no setting, only the folders of its user.
///
/// # Safety
/// `settings` points at twice `count` texts; the other pointers are null or room for a pointer.
pub unsafe fn open(
    open: impl FnOnce(Config) -> Result<Library, Error>,
    settings: *const *const c_char,
    count: usize,
    library: *mut *const Library,
    error: *mut *mut Failure,
) -> c_int {
    let function = Function("parbake_open");
    let body = || {
        if settings.is_null() && count > 0 {
            return Err(function.bad("settings", format!("{count} names and values"), "a null pointer"));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for i in 0..count {
            // SAFETY: the caller vouches for the texts.
            let (name, value) = unsafe {
                (function.text("settings", *settings.add(2 * i))?, function.text("settings", *settings.add(2 * i + 1))?)
            };
            if !SETTINGS.iter().any(|s| s.name == name) {
                let near = nearest(name, SETTINGS.iter().map(|s| s.name)).map(|n| format!(", as in {n}"));
                return Err(function.bad(
                    "settings",
                    format!("the name of a setting{}", near.unwrap_or_default()),
                    name,
                ));
            }
            pairs.push((name.to_owned(), value.to_owned()));
        }
        open(Config::from_settings(pairs)?).map(|library| Box::into_raw(Box::new(library)).cast_const())
    };
    // SAFETY: as the caller vouches.
    unsafe { give(function, "library", std::ptr::null(), library, error, body) }
}

/// Writes what a body gives, or `nothing`.
///
/// # Safety
/// Both pointers are null or room for a pointer.
unsafe fn give<T: Copy>(
    function: Function,
    name: &'static str,
    nothing: T,
    place: *mut T,
    error: *mut *mut Failure,
    body: impl FnOnce() -> Result<T, Error>,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        if !place.is_null() {
            place.write(nothing);
        }
        guard(error, || {
            if place.is_null() {
                return Err(function.bad(name, "room for a pointer", "a null pointer"));
            }
            place.write(body()?);
            Ok(())
        })
    }
}

/// `parbake_close`: frees what a library of [`open`] keeps in memory. The process's own stays. Code that was loaded stays
/// loaded: streams may still have work with it.
///
/// # Safety
/// `library` is null, lent by [`default`], or opened and not closed before; no call with it is running.
pub unsafe fn close(default: Option<&'static Library>, library: *const Library) {
    let lent = default.is_some_and(|d| std::ptr::eq(d, library));
    if !library.is_null() && !lent {
        // SAFETY: it was made by `open`, and nobody uses it any more.
        let library = unsafe { Box::from_raw(library.cast_mut()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(library)));
    }
}

/// What a question is about: a spec of an op, and what it is to run on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Asked {
    /// Null or an open library.
    pub library: *const Library,
    /// An op, or for [`prepare`] a pattern: null or a text.
    pub op: *const c_char,
    /// `dtype=bf16 block=512`: null or a text.
    pub values: *const c_char,
    /// `sm_90a`, `host` or `auto`: null or a text.
    pub target: *const c_char,
}

/// [`Asked`], read.
struct Question<'a> {
    library: &'a Library,
    op: &'a str,
    values: Vec<(String, String)>,
    /// None for the devices here.
    target: Option<ModelTarget>,
}

impl Asked {
    /// # Safety
    /// The pointers are as their fields say.
    unsafe fn read<'a>(self, function: Function) -> Result<Question<'a>, Error> {
        // SAFETY: as the caller vouches.
        let library = unsafe { self.library.as_ref() };
        let library = library.ok_or_else(|| function.bad("library", "an open library", "a null pointer"))?;
        // SAFETY: as above.
        let (op, values, target) = unsafe {
            (
                function.text("op", self.op)?,
                if self.values.is_null() { "" } else { function.text("values", self.values)? },
                if self.target.is_null() { "auto" } else { function.text("target", self.target)? },
            )
        };
        let target = if target == "auto" { None } else { Some(target.parse()?) };
        Ok(Question { library, op, values: pairs(function, values)?, target })
    }
}

/// Splits `dtype=bf16 block=512`, each name at most once.
fn pairs(function: Function, text: &str) -> Result<Vec<(String, String)>, Error> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for word in text.split_whitespace() {
        let pair = word.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let (name, value) = pair.ok_or_else(|| function.bad("values", "name=value, as in dtype=bf16", word))?;
        if pairs.iter().any(|(n, _)| n == name) {
            return Err(function.bad("values", format!("one value of `{name}`"), text));
        }
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

impl Question<'_> {
    fn spec(&self) -> Result<(OpId, Spec, Goal), Error> {
        let op = self.library.op(self.op)?;
        let goal = match self.target {
            Some(ModelTarget::Host) => Goal::Host,
            Some(target) => Goal::Target(target),
            None => self.library.goal(Place::Cuda(driver::first()?.ordinal))?,
        };
        Ok((op, self.library.spec(op, &self.values, goal.target())?, goal))
    }
}

/// `parbake_supports`: whether and from where a spec would be served.
///
/// # Safety
/// The pointers in `asked` are as its fields say, `json` and `error` null or room for a pointer.
pub unsafe fn supports(asked: Asked, json: *mut *mut c_char, error: *mut *mut Failure) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        answer("parbake_supports", asked, json, error, |question| {
            let (op, spec, goal) = question.spec()?;
            question.library.supports(op, &spec, goal)
        })
    }
}

/// `parbake_explain`: the whole decision about a spec, and its identities.
///
/// # Safety
/// As [`supports`].
pub unsafe fn explain(asked: Asked, json: *mut *mut c_char, error: *mut *mut Failure) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        answer("parbake_explain", asked, json, error, |question| {
            let (op, spec, goal) = question.spec()?;
            question.library.why(op, &spec, goal)
        })
    }
}

/// `parbake_prepare`: has every tactic of ops ready, in this process for the devices here and the host, else in a bundle
/// or the store.
///
/// # Safety
/// As [`supports`].
pub unsafe fn prepare(asked: Asked, json: *mut *mut c_char, error: *mut *mut Failure) -> c_int {
    let function = Function("parbake_prepare");
    // SAFETY: as the caller vouches.
    unsafe {
        answer(function.0, asked, json, error, |question| {
            let Question { library, op: pattern, values, target } = question;
            let sites: Vec<Site> = match target {
                Some(ModelTarget::Host) => vec![Site::Place(Place::Host)],
                Some(target) => vec![Site::Target(target)],
                None => {
                    driver::first()?;
                    let devices = driver::ready().map(|r| r.devices.as_slice()).unwrap_or_default();
                    devices.iter().map(|d| Site::Place(Place::Cuda(d.ordinal))).collect()
                }
            };
            let ops = choose(pattern, library.ops())?;
            let mut wanted = Vec::new();
            for (op, _) in ops {
                wanted.extend(library.tactics(op, &values, &sites)?);
            }
            library.make_ready(&wanted)
        })
    }
}

/// Reads a question, and writes its answer as JSON.
///
/// # Safety
/// As [`supports`].
unsafe fn answer<T: serde::Serialize>(
    function: &'static str,
    asked: Asked,
    json: *mut *mut c_char,
    error: *mut *mut Failure,
    body: impl FnOnce(Question<'_>) -> Result<T, Error>,
) -> c_int {
    let function = Function(function);
    // SAFETY: as the caller vouches.
    unsafe {
        give(function, "json", std::ptr::null_mut(), json, error, || {
            let answer = body(asked.read(function)?)?;
            let words = serde_json::to_string_pretty(&answer).expect("bug: answers are plain data");
            Ok(text(words).into_raw())
        })
    }
}

/// `parbake_snippet`: the number of a snippet.
///
/// # Safety
/// `library` is null or open, `op` and `snippet` null or NUL-terminated texts, `number` and `error` null or room for each.
pub unsafe fn snippet(
    library: *const Library,
    op: *const c_char,
    snippet: *const c_char,
    number: *mut i32,
    error: *mut *mut Failure,
) -> c_int {
    let function = Function("parbake_snippet");
    // SAFETY: as the caller vouches.
    unsafe {
        give(function, "number", 0, number, error, || {
            let library = library.as_ref();
            let library = library.ok_or_else(|| function.bad("library", "an open library", "a null pointer"))?;
            let op = library.op(function.text("op", op)?)?;
            let read = Snippet::read(library.definition(op), function.text("snippet", snippet)?);
            library.snippet(op, &read.map_err(Error::Snippet)?)
        })
    }
}

/// `parbake_pool_new`.
///
/// # Safety
/// `memory`, `pool` and `error` are null or room for a pointer.
pub unsafe fn pool_new(
    device: i32,
    bytes: usize,
    memory: *mut *mut c_void,
    pool: *mut *mut Pool,
    error: *mut *mut Failure,
) -> c_int {
    let function = Function("parbake_pool_new");
    // SAFETY: as the caller vouches.
    unsafe {
        give(function, "pool", std::ptr::null_mut(), pool, error, || {
            if memory.is_null() {
                return Err(function.bad("memory", "room for a pointer", "a null pointer"));
            }
            let place = match device {
                -1 => Place::Host,
                0.. => Place::Cuda(device),
                _ => return Err(function.bad("device", "a CUDA device, or -1 for CPU memory", device.to_string())),
            };
            let made = Pool::new(place, bytes)?;
            memory.write(made.address() as *mut c_void);
            Ok(Box::into_raw(Box::new(made)))
        })
    }
}

/// `parbake_pool_handle`.
///
/// # Safety
/// `pool` is null or a pool, `handle` null or room for a handle, `error` null or room for a pointer.
pub unsafe fn pool_handle(pool: *const Pool, handle: *mut c_void, error: *mut *mut Failure) -> c_int {
    let function = Function("parbake_pool_handle");
    // SAFETY: as the caller vouches.
    unsafe {
        guard(error, || {
            let pool = pool.as_ref().ok_or_else(|| function.bad("pool", "a pool", "a null pointer"))?;
            if handle.is_null() {
                return Err(function.bad("handle", "room for a handle", "a null pointer"));
            }
            std::ptr::copy_nonoverlapping(pool.handle().as_ptr(), handle.cast(), HANDLE_BYTES);
            Ok(())
        })
    }
}

/// `parbake_pool_open`.
///
/// # Safety
/// `pool` is null or a pool that nobody else uses meanwhile; `handles` null or handles of `ranks` pools; `addresses` null
/// or room for as many; `error` null or room for a pointer.
pub unsafe fn pool_open(
    pool: *mut Pool,
    rank: i32,
    ranks: i32,
    handles: *const c_void,
    addresses: *mut i64,
    error: *mut *mut Failure,
) -> c_int {
    let function = Function("parbake_pool_open");
    // SAFETY: as the caller vouches.
    unsafe {
        guard(error, || {
            let pool = pool.as_mut().ok_or_else(|| function.bad("pool", "a pool", "a null pointer"))?;
            let count = usize::try_from(ranks).ok().filter(|n| (1..=MAX_RANKS).contains(n));
            let count = count.ok_or_else(|| function.bad("ranks", format!("1 to {MAX_RANKS}"), ranks.to_string()))?;
            let own = usize::try_from(rank).ok().filter(|r| *r < count);
            let own = own.ok_or_else(|| function.bad("rank", format!("0 to {}", count - 1), rank.to_string()))?;
            if handles.is_null() || addresses.is_null() {
                let which = if handles.is_null() { "handles" } else { "addresses" };
                return Err(function.bad(which, format!("those of {count} ranks"), "a null pointer"));
            }
            let all = std::slice::from_raw_parts(handles.cast::<u8>(), count * HANDLE_BYTES);
            let all: Vec<Vec<u8>> = all.chunks(HANDLE_BYTES).map(<[u8]>::to_vec).collect();
            for (i, address) in pool.open(own, &all)?.into_iter().enumerate() {
                addresses.add(i).write(address as i64);
            }
            Ok(())
        })
    }
}

/// `parbake_pool_free`.
///
/// # Safety
/// `pool` is null or a pool that was not freed before; no work with it is left.
pub unsafe fn pool_free(pool: *mut Pool) {
    if !pool.is_null() {
        // SAFETY: it was made by `pool_new`.
        let pool = unsafe { Box::from_raw(pool) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(pool)));
    }
}

/// `parbake_error_kind`.
///
/// # Safety
/// `error` is null or an error object.
#[must_use]
pub unsafe fn error_kind(error: *const Failure) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { error.as_ref() }.map_or(0, |e| e.kind.number())
}

/// `parbake_error_code`.
///
/// # Safety
/// `error` is null or an error object.
#[must_use]
pub unsafe fn error_code(error: *const Failure) -> *const c_char {
    // SAFETY: as the caller vouches.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |e| e.code.as_ptr())
}

/// `parbake_error_message`.
///
/// # Safety
/// `error` is null or an error object.
#[must_use]
pub unsafe fn error_message(error: *const Failure) -> *const c_char {
    // SAFETY: as the caller vouches.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |e| e.message.as_ptr())
}

/// `parbake_error_free`.
///
/// # Safety
/// `error` is null or an error object that was not freed before.
pub unsafe fn error_free(error: *mut Failure) {
    if !error.is_null() {
        // SAFETY: it was made by `guard`.
        drop(unsafe { Box::from_raw(error) });
    }
}

/// `parbake_set_log_level`: 0, or the number of an error.
#[must_use]
pub fn set_log_level(level: c_int) -> c_int {
    let set = u8::try_from(level).ok().map(crate::log::set_level);
    if matches!(set, Some(Ok(()))) { 0 } else { Kind::Value.number() }
}

/// `parbake_text_free`.
///
/// # Safety
/// `text` is null or was given by this library and not freed before.
pub unsafe fn text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it was made by `CString::into_raw`.
        drop(unsafe { CString::from_raw(text) });
    }
}
