//! The call door: what hosts in other languages hand over becomes a call of [`Library`], and what went wrong becomes an
//! error of theirs.
//!
//! TVM FFI ([`tvm_ffi`]) and the C ABI are thin layers over [`call`]. Nothing here keeps state: a host brings its library.

pub mod c;
pub mod dlpack;
pub mod tvm_ffi;

use crate::call::Called;
use crate::check::{BadArguments, Wrong};
use crate::code::{Place, Stream};
use crate::error::Error;
use crate::group::GroupError;
use crate::library::{Library, OpId};
use crate::log;
use crate::snippet::Value;
use crate::tensor::{MAX_RANK, Tensor};
use dlpack::DLTensor;
use parbake_model::op::{self, Op};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most tensors that an op may have: a call allocates nothing.
pub const MAX_TENSORS: usize = 16;
/// The most scalars that an op may have.
pub const MAX_SCALARS: usize = 16;

/// Where a caller lets an op run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// Where the tensors are. Tensors in CPU memory are refused: the host target is for correctness, and nobody should
    /// come to wait for it unawares.
    #[default]
    Auto,
    /// On the CPU, through the host target.
    Host,
}

impl Target {
    /// Reads `auto` or `host`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "host" => Some(Self::Host),
            _ => None,
        }
    }
}

/// What a host gives a parameter of a snippet.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// A number.
    Number(f64),
    /// A tensor.
    Tensor(&'a DLTensor),
}

/// Which exception of a host language an error becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An argument of the wrong type: no tensor, or one of another element type; too many or too few.
    Type,
    /// An argument of the right type with a value that does not fit: shape, stride, device, overlap, range.
    Value,
    /// The combination does not exist for this op or target.
    NotImplemented,
    /// Nothing covers it, and it may not or cannot be compiled.
    NotCovered,
    /// Everything else.
    Other,
}

impl Kind {
    /// The kind of an error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Arguments(bad) if bad.violations.iter().any(|v| ["type", "dtype", "count"].contains(&v.what)) => {
                Self::Type
            }
            Error::Arguments(_)
            | Error::BadCall(_)
            | Error::Group(GroupError::Unfit { .. })
            | Error::Setting(_)
            | Error::Snippet(_)
            | Error::UnknownOp { .. }
            | Error::UnknownValue { .. }
            | Error::Target(_) => Self::Value,
            Error::Unsupported { .. } => Self::NotImplemented,
            Error::NotCovered(_) | Error::Gaps { .. } => Self::NotCovered,
            _ => Self::Other,
        }
    }
    /// The name of the exception in Python, as TVM FFI spells it. Those with a dot are registered by the package
    /// `parbake`; elsewhere they are runtime errors.
    #[must_use]
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::Type => c"TypeError",
            Self::Value => c"ValueError",
            Self::NotImplemented => c"NotImplementedError",
            Self::NotCovered => c"parbake.NotCoveredError",
            Self::Other => c"parbake.Error",
        }
    }
}

/// An error for a host: its code in brackets, then everything that the command line would print.
#[must_use]
pub fn message(error: &Error) -> String {
    // It stands behind the name of an exception, so the word `error` is left out.
    let report = error.report();
    report.to_string().replacen(&format!("error[{}]:", report.code), &format!("[{}]", report.code), 1)
}

/// What went wrong, as hosts are told.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// Runs what a host called. Its error is rendered, and a panic caught, before anything crosses the border: also one of the
/// rendering. A panic leaves no lock of ours in a state that the next call would trust.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Fault> {
    let rendered = || {
        body().map_err(|error| Fault { kind: Kind::of(&error), code: error.report().code, message: message(&error) })
    };
    catch_unwind(AssertUnwindSafe(rendered)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().copied();
        let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
        let message = format!("[PB-2151] parbake panicked: {words}. Nothing more is known; please report it");
        Err(Fault { kind: Kind::Other, code: "PB-2151", message })
    })
}

impl Wrong {
    /// An error if there is any, which the API log is told of: the call does not come as far as [`Library::call`].
    pub(crate) fn check(self, library: &Library, op: &Op) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let error = Error::Arguments(BadArguments { op: op.name.clone(), violations: self.0 });
        log::refused(library, op, &error);
        Err(error)
    }
}

/// Calls an op on tensors that a host describes, in the order of `op.toml`; those that are not given are None. `values` are
/// those of a snippet's parameters, by name. `stream` is asked for the stream of a GPU
/// once its number is known.
///
/// A tensor with more dimensions than the op declares is taken if the op lets its first dimension stand for several, and
/// its strides let them be one.
///
/// # Errors
/// Every argument that does not fit; then what [`Library::call`] fails with.
///
/// # Safety
/// Every descriptor is complete, and its memory valid on its device for its whole extent, until the stream has passed
/// the work.
pub unsafe fn call(
    library: &Library,
    op: OpId,
    (tensors, scalars): (&[Option<&DLTensor>], &[f64]),
    values: &[(&str, Given<'_>)],
    target: Target,
    stream: impl FnOnce(i32) -> Stream,
) -> Result<Called, Error> {
    let def = library.definition(op);
    let mut views = [const { MaybeUninit::uninit() }; MAX_TENSORS];
    let mut wrong = Wrong::default();
    let (mut place, mut leading) = (None, None);
    if tensors.len() != def.tensors.len() || tensors.len() > MAX_TENSORS {
        wrong.add("call", "count", format!("{} tensors", def.tensors.len()), tensors.len().to_string());
        return wrong.check(library, def).map(|()| unreachable!("bug: something is wrong"));
    }
    for ((given, declared), view) in tensors.iter().zip(&def.tensors).zip(&mut views) {
        let Some(given) = given else {
            // Whether it may be absent is looked at with everything else.
            view.write(Tensor::ABSENT);
            continue;
        };
        at_one_place(given, &declared.name, target, &mut place, &mut wrong);
        // SAFETY: the caller vouches for the descriptor.
        match unsafe { given.view() } {
            Ok(tensor) => {
                view.write(folded(tensor, declared, def, &mut leading, &mut wrong));
            }
            Err((what, expected, got)) => {
                let expected = if what == "dtype" { dtypes(declared, def) } else { expected };
                wrong.add(&declared.name, what, expected, got);
            }
        }
    }
    let mut snippet = Vec::new();
    for &(name, given) in values {
        match given {
            Given::Number(number) => snippet.push((name, Value::Number(number))),
            Given::Tensor(given) => {
                at_one_place(given, name, target, &mut place, &mut wrong);
                // SAFETY: the caller vouches for the descriptor.
                match unsafe { given.view() } {
                    Ok(tensor) => snippet.push((name, Value::Tensor(tensor))),
                    Err((what, expected, got)) => wrong.add(name, what, expected, got),
                }
            }
        }
    }
    wrong.check(library, def)?;
    let place = place.unwrap_or(Place::Host);
    let stream = match place {
        Place::Cuda(ordinal) => stream(ordinal),
        Place::Host => Stream::DEFAULT,
    };
    // SAFETY: each was written, for nothing was wrong with it; plain data lies in the array one after the other.
    let views = unsafe { std::slice::from_raw_parts(views.as_ptr().cast::<Tensor>(), tensors.len()) };
    // SAFETY: as the caller vouches.
    unsafe { library.call_snippet(op, (views, scalars), &snippet, place, stream) }
}

/// All tensors are on one device, of a kind that the target admits.
#[inline]
fn at_one_place(given: &DLTensor, name: &str, target: Target, place: &mut Option<Place>, wrong: &mut Wrong) {
    let found = given.device.place();
    let admitted = matches!((found, target), (Some(Place::Cuda(_)), Target::Auto) | (Some(Place::Host), Target::Host));
    if !admitted {
        let expected = match target {
            Target::Auto if found == Some(Place::Host) => "a CUDA device, or target=\"host\" to run on the CPU",
            Target::Auto => "a CUDA device",
            Target::Host => "cpu, as target=\"host\" says",
        };
        wrong.add(name, "device", expected, given.device.to_string());
    } else if *place.get_or_insert(found.unwrap_or(Place::Host)) != found.unwrap_or(Place::Host) {
        let before = match place {
            Some(Place::Cuda(ordinal)) => format!("cuda:{ordinal}"),
            _ => "cpu".to_owned(),
        };
        let expected = format!("{before}, as of the tensors before it");
        wrong.add(name, "device", expected, given.device.to_string());
    }
}

/// Lets leading dimensions be the one that the op declares. They are the same for all tensors: that their product agrees
/// is not enough.
#[inline]
fn folded(tensor: Tensor, declared: &op::Tensor, def: &Op, leading: &mut Option<Leading>, wrong: &mut Wrong) -> Tensor {
    let rank = declared.shape.len();
    let folds = declared.shape.first().and_then(|s| def.dim(s)).is_some_and(|d| d.folds);
    let Some(count) = (tensor.shape().len() + 1).checked_sub(rank).filter(|n| folds && *n > 0) else { return tensor };
    let found = Leading { extents: tensor.shape_array(), count };
    let before = *leading.get_or_insert(found);
    // Where each has one, they are compared with the rest of the shape.
    if (before.count > 1 || count > 1) && before.extents() != found.extents() {
        let expected = format!("leading dimensions {:?}, as of the tensors before it", before.extents());
        wrong.add(&declared.name, "shape", expected, format!("{:?} of {:?}", found.extents(), tensor.shape()));
        return tensor;
    }
    if count == 1 {
        return tensor;
    }
    tensor.folded(rank).unwrap_or_else(|| {
        let expected = format!("strides with which the first {count} dimensions are one, as after `reshape`");
        wrong.add(&declared.name, "stride", expected, format!("{:?} for {:?}", tensor.strides(), tensor.shape()));
        tensor
    })
}

/// The dimensions of a tensor that stand for the first one of an op's.
#[derive(Clone, Copy)]
struct Leading {
    extents: [i64; MAX_RANK],
    count: usize,
}

impl Leading {
    fn extents(&self) -> &[i64] {
        &self.extents[..self.count]
    }
}

/// The element types that a tensor may have, for a person.
fn dtypes(declared: &op::Tensor, def: &Op) -> String {
    let axis = declared.axis.as_ref().and_then(|name| def.axes.iter().find(|a| &a.name == name));
    let values = axis.map(|a| a.values.iter().map(|v| v.value.as_str()).collect::<Vec<_>>().join(" or "));
    values.or(declared.dtype.map(|d| d.to_string())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parbake_model::bundle::{BundleError, Part};

    #[test]
    fn panics_of_a_call_and_of_its_report_are_errors_with_a_code() {
        #[derive(Debug)]
        struct Sore;
        impl std::error::Error for Sore {}
        impl std::fmt::Display for Sore {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                panic!("deliberate, in a report")
            }
        }
        let sore = || {
            let source = BundleError::Io { part: Part::Header, source: std::io::Error::other(Sore) };
            Err(Error::Bundle { path: "x".into(), source })
        };
        for (fault, words) in [
            (guarded(|| -> Result<(), Error> { panic!("deliberate") }).unwrap_err(), "panicked: deliberate."),
            (guarded::<()>(sore).unwrap_err(), "panicked: deliberate, in a report."),
        ] {
            assert_eq!((fault.kind.name(), fault.code), (c"parbake.Error", "PB-2151"));
            assert!(fault.message.starts_with("[PB-2151] ") && fault.message.contains(words), "{}", fault.message);
        }
        assert!(guarded(|| Ok(1)).is_ok_and(|one| one == 1));
    }
}
