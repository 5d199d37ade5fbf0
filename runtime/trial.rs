//! A trial runs an op once on random data and compares it with the float64 reference.
//!
//! Outputs are poisoned with NaNs before the run, rows may be strided and memory unaligned, and whatever lies between
//! and around the elements must be untouched afterwards. A NaN never passes.

use crate::binding::Problem;
use crate::check;
use crate::code::{Place, Stream};
use crate::decision::Origin;
use crate::error::Error;
use crate::library::{Library, OpId};
use crate::memory::{self, Memory};
use crate::tensor::Tensor;
use parbake_model::Target;
use parbake_model::dtype::DType;
use parbake_model::op::{Op, Role, Tolerance};
use serde::Serialize;
use std::collections::BTreeMap;

/// What to run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// A value for each axis.
    pub axes: BTreeMap<String, String>,
    /// A value for each shape symbol.
    pub dims: BTreeMap<String, i64>,
    /// Scalars that differ from their default.
    pub scalars: BTreeMap<String, f64>,
    /// Which random data.
    pub seed: u64,
    /// Elements between the end of a row and the next row.
    pub pad: i64,
    /// Elements between an aligned address and the first element.
    pub offset: usize,
    /// How many further launches are timed.
    pub timed: u32,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The op.
    pub op: String,
    /// The spec that was launched.
    pub uri: String,
    /// What its image was compiled for.
    pub target: Option<Target>,
    /// Where the kernel came from.
    pub from: Origin,
    /// The version bypass by which the kernel was taken, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_bypass: Option<String>,
    /// Milliseconds of compiling, if it was compiled.
    pub compile_ms: Option<f64>,
    /// Milliseconds of finding and loading.
    pub load_ms: Option<f64>,
    /// Microseconds of one launch.
    pub launch_us: Option<f64>,
    /// The largest distance from the reference.
    pub max_abs_err: f64,
    /// The largest distance, as a share of the reference.
    pub max_rel_err: f64,
    /// What is allowed.
    pub tolerance: String,
    /// Whether every element is within it.
    pub ok: bool,
    /// The first thing that is wrong.
    pub wrong: Option<String>,
}

/// Bytes around each tensor that must stay as they are.
const GUARD: usize = 512;
const POISON: u8 = 0xff;

struct Placed {
    memory: Memory,
    before: Vec<u8>,
    tensor: Tensor,
    /// Where each element lies in the memory, in bytes.
    places: Vec<usize>,
}

/// A small generator of good enough bits (SplitMix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// Normally distributed (Box and Muller).
    fn normal(&mut self) -> f64 {
        let mut unit = || ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * unit().ln()).sqrt() * (2.0 * std::f64::consts::PI * unit()).cos()
    }
}

impl Trial {
    /// The first example of the op's trace template, with these axis values.
    #[must_use]
    pub fn example(op: &Op, axes: BTreeMap<String, String>) -> Self {
        let dims = op.trace.examples.first().cloned().unwrap_or_default();
        Self { axes, dims, scalars: BTreeMap::new(), seed: 1, pad: 0, offset: 0, timed: 0 }
    }

    fn dtype(&self, tensor: &parbake_model::op::Tensor) -> DType {
        let named = tensor.axis.as_ref().and_then(|axis| self.axes.get(axis)).and_then(|v| DType::named(v));
        named.or(tensor.dtype).expect("bug: a tensor's type is an axis that has a value, or fixed")
    }

    /// Lays out and fills a tensor. Inputs are normally distributed and rounded; outputs are poisoned.
    fn place(&self, def: &parbake_model::op::Tensor, place: Place, random: &mut Random) -> Result<Placed, Error> {
        let dtype = self.dtype(def);
        let width = dtype.bytes();
        let shape: Vec<i64> = def.shape.iter().map(|s| self.dims[s]).collect();
        let mut strides = vec![1i64; shape.len()];
        for i in (0..shape.len().saturating_sub(1)).rev() {
            let free = i + def.dense + 1 == shape.len();
            strides[i] = strides[i + 1] * shape[i + 1] + if free { self.pad } else { 0 };
        }
        let count: i64 = shape.iter().product();
        let first = GUARD + self.offset * width;
        let mut places = Vec::with_capacity(count as usize);
        for mut i in 0..count {
            let mut at = 0;
            for (extent, stride) in shape.iter().zip(&strides).rev() {
                at += i % extent * stride;
                i /= extent;
            }
            places.push(first + at as usize * width);
        }
        let end = places.last().map_or(first, |last| last + width) + GUARD;
        let mut before = vec![POISON; end];
        if def.role != Role::Out {
            for &at in &places {
                dtype.store(random.normal(), &mut before[at..at + width]);
            }
        }
        let mut memory = Memory::new(place, &before)?;
        let data = (memory.pointer() as usize + first) as *mut std::ffi::c_void;
        let tensor = Tensor::new(data, dtype, &shape, &strides).expect("bug: op.toml declares too many dimensions");
        Ok(Placed { memory, before, tensor, places })
    }

    /// Runs the op and compares.
    ///
    /// # Errors
    /// If the op could not be run; a wrong result is no error but an [`Outcome`] that is not `ok`.
    pub fn run(&self, library: &Library, op: OpId, place: Place) -> Result<Outcome, Error> {
        let def = library.definition(op);
        let binding = library.binding(op)?;
        self.complete(def)?;
        let mut random = Random(self.seed);
        let mut placed =
            def.tensors.iter().map(|t| self.place(t, place, &mut random)).collect::<Result<Vec<_>, _>>()?;
        let tensors: Vec<Tensor> = placed.iter().map(|p| p.tensor).collect();
        let scalar = |s: &parbake_model::op::Scalar| self.scalars.get(&s.name).copied().or(s.default).unwrap_or(s.min);
        let scalars: Vec<f64> = def.scalars.iter().map(scalar).collect();
        // SAFETY: the memory of every tensor lives until it is read back below.
        let called = unsafe { library.call(op, &tensors, &scalars, place, Stream::DEFAULT)? };
        let after = placed.iter().map(|p| p.memory.read()).collect::<Result<Vec<_>, _>>()?;

        let values = |p: &Placed| p.places.iter().map(|&at| p.tensor.dtype.load(&p.before[at..])).collect::<Vec<f64>>();
        let inputs = def.tensors.iter().zip(&placed).filter(|(t, _)| t.role != Role::Out);
        let problem = Problem {
            dims: self.dims.clone(),
            // The kernel takes scalars as f32: the reference takes what the kernel gets.
            scalars: def.scalars.iter().zip(&scalars).map(|(s, v)| (s.name.clone(), f64::from(*v as f32))).collect(),
            inputs: inputs.map(|(t, p)| (t.name.clone(), values(p))).collect(),
            dtype: check::output_dtype(def, &tensors),
        };
        let mut judge = Judge::default();
        for expected in (binding.reference)(&problem) {
            let i = def.tensors.iter().position(|t| t.name == expected.name).expect("bug: a reference of another op");
            let tolerance = def.tolerance[&tensors[i].dtype];
            let (dtype, bytes) = (tensors[i].dtype, &after[i]);
            let got = placed[i].places.iter().map(|&at| dtype.load(&bytes[at..]));
            judge.compare(expected.name, &expected.values, expected.exact, dtype, got, tolerance);
        }
        for ((t, p), bytes) in def.tensors.iter().zip(&placed).zip(&after) {
            judge.untouched(&t.name, t.role, p, bytes);
        }
        let launch_us = self.time(library, op, &tensors, &scalars, place)?;
        placed.clear();
        Ok(Outcome {
            op: def.name.clone(),
            uri: called.kernel.as_ref().map(|k| k.uri.clone()).unwrap_or_default(),
            target: called.kernel.as_ref().and_then(|k| k.decision.target),
            from: called.from,
            compile_ms: called.kernel.as_ref().filter(|_| called.from == Origin::Jit).and_then(|k| k.compile_ms),
            version_bypass: called.kernel.as_ref().and_then(|k| k.decision.version_bypass.clone()),
            load_ms: called.kernel.as_ref().filter(|_| called.from != Origin::Registry).map(|k| k.load_ms),
            launch_us,
            max_abs_err: judge.max_abs,
            max_rel_err: judge.max_rel,
            tolerance: def.tolerance[&problem.dtype].to_string(),
            ok: judge.wrong.is_none(),
            wrong: judge.wrong,
        })
    }

    fn complete(&self, def: &Op) -> Result<(), Error> {
        for dim in &def.dims {
            let value = self.dims.get(&dim.name).copied();
            if !value.is_some_and(|v| v >= dim.min && v <= dim.max) {
                return Err(Error::UnknownValue {
                    op: def.name.clone(),
                    what: format!("shape symbol `{}` has no legal value", dim.name),
                    expected: format!("{} to {}", dim.min, dim.max),
                    got: value.map_or("nothing".to_owned(), |v| v.to_string()),
                });
            }
        }
        Ok(())
    }

    fn time(
        &self,
        library: &Library,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        place: Place,
    ) -> Result<Option<f64>, Error> {
        if self.timed == 0 {
            return Ok(None);
        }
        let total = memory::time(place, || {
            for _ in 0..self.timed {
                // SAFETY: as for the call that was checked; results are not looked at any more.
                unsafe { library.call(op, tensors, scalars, place, Stream::DEFAULT)? };
            }
            Ok::<(), Error>(())
        })?;
        Ok(Some(total / f64::from(self.timed)))
    }
}

/// How far values are from what they should be, and the first thing that is wrong.
#[derive(Default)]
pub(crate) struct Judge {
    pub(crate) max_abs: f64,
    pub(crate) max_rel: f64,
    pub(crate) wrong: Option<String>,
}

impl Judge {
    pub(crate) fn compare(
        &mut self,
        name: &str,
        expected: &[f64],
        exact: bool,
        dtype: DType,
        got: impl ExactSizeIterator<Item = f64>,
        tolerance: Tolerance,
    ) {
        if expected.len() != got.len() {
            self.complain(|| format!("`{name}`: the reference has {} elements of {}", expected.len(), got.len()));
            return;
        }
        for (i, (&want, got)) in expected.iter().zip(got).enumerate() {
            let rounded = dtype.round(want);
            let distance = match tolerance {
                _ if exact => (got - rounded).abs(),
                Tolerance::Ulp { .. } => (got - rounded).abs(),
                Tolerance::AbsRel { .. } => (got - want).abs(),
            };
            let bound = if exact { 0.0 } else { tolerance.bound(dtype, want) };
            let same = got == rounded || (got.is_nan() && want.is_nan());
            // Comparisons with a NaN are false: it is asked for by name.
            if !same && (distance.is_nan() || distance > bound) {
                self.complain(|| format!("`{name}` element {i}: expected {rounded:e}, got {got:e}, allowed {bound:e}"));
            }
            if !same {
                self.max_abs = if distance.is_nan() { f64::NAN } else { self.max_abs.max(distance) };
                let relative = distance / want.abs().max(f64::MIN_POSITIVE);
                self.max_rel = if relative.is_nan() { f64::NAN } else { self.max_rel.max(relative) };
            }
        }
    }

    /// Inputs, the gaps between rows, and the guards must be as they were.
    fn untouched(&mut self, name: &str, role: Role, placed: &Placed, after: &[u8]) {
        let width = placed.tensor.dtype.bytes();
        let mut may_change = vec![false; after.len()];
        if role != Role::In {
            for &at in &placed.places {
                may_change[at..at + width].fill(true);
            }
        }
        let changed = (0..after.len()).find(|&i| !may_change[i] && after[i] != placed.before[i]);
        if let Some(i) = changed {
            self.complain(|| format!("`{name}`: byte {i} was written, which belongs to no element that may be"));
        }
    }

    pub(crate) fn complain(&mut self, text: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(text());
        }
    }
}
