//! A trial runs an op once on random data and compares it with the float64 reference.
//!
//! Outputs are poisoned with NaNs before the run, rows may be strided and memory unaligned, and whatever lies between
//! and around the elements must be untouched afterwards. A NaN never passes.

use crate::asan;
use crate::binding::{Binding, Draw, Random, Rule, Tactic};
use crate::call::Also;
use crate::code::{Place, Stream};
use crate::decision::Origin;
use crate::error::Error;
use crate::library::{Library, OpId};
use crate::memory::{self, Memory};
use crate::tensor::Tensor;
use parbake_model::Target;
use parbake_model::dtype::DType;
use parbake_model::extent::Extent;
use parbake_model::op::{Op, Role, Tolerance};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What to run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// A value for each axis.
    pub axes: BTreeMap<String, String>,
    /// A value for each shape symbol.
    pub dims: BTreeMap<String, i64>,
    /// Scalars that differ from their default.
    pub scalars: BTreeMap<String, f64>,
    /// Optional tensors that are given.
    pub with: BTreeSet<String>,
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

/// Where a tensor will lie.
struct Plan {
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    first: usize,
    places: Vec<usize>,
    bytes: Vec<u8>,
}

pub(crate) struct Placed {
    memory: Memory,
    before: Vec<u8>,
    tensor: Tensor,
    /// Where each element lies in the memory, in bytes.
    places: Vec<usize>,
}

/// The arguments of a call, and their memory.
pub(crate) struct Arguments {
    placed: Vec<Option<Placed>>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) scalars: Vec<f64>,
}

impl Arguments {
    /// How much memory they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.placed.iter().flatten().map(|p| p.before.len() as u64).sum()
    }
}

impl Placed {
    /// Lets a sanitizer watch over what is no element, or no longer. Only the host's memory is this process's.
    fn watch(&mut self, place: Place, on: bool) {
        let (memory, bytes) = (self.memory.pointer(), self.before.len());
        if place != Place::Host {
            return;
        }
        // SAFETY: the memory is that of this trial, which ends the watch after the call.
        unsafe {
            if on {
                asan::close(memory, bytes, &self.places, self.tensor.dtype.bytes());
            } else {
                asan::open(memory, bytes);
            }
        }
    }
}

impl Trial {
    /// The first example of the op's trace template, with these axis values and the optional tensors that it gives.
    #[must_use]
    pub fn example(op: &Op, axes: BTreeMap<String, String>) -> Self {
        let dims = op.trace.examples.first().cloned().unwrap_or_default();
        let (scalars, with) = (BTreeMap::new(), op.trace.given.iter().cloned().collect());
        let mut trial = Self { axes, dims, scalars, with, seed: 1, pad: 0, offset: 0, timed: 0 };
        // A value of an axis that is an extent or a scalar says what that is.
        for axis in &op.axes {
            let Some(value) = trial.axes.get(&axis.name) else { continue };
            if let Some(dim) = &axis.dim
                && let Ok(extent) = value.parse()
            {
                trial.dims.insert(dim.clone(), extent);
            }
            if let Some(scalar) = &axis.scalar
                && let Some(i) = axis.values.iter().position(|v| v.value == *value)
            {
                trial.scalars.insert(scalar.clone(), i as f64);
            }
        }
        trial.derive(op);
        trial
    }

    /// Sets the axes that follow from extents and scalars.
    pub fn derive(&mut self, op: &Op) {
        for axis in &op.axes {
            let extent = axis.dim.as_ref().and_then(|dim| self.dims.get(dim)).map(i64::to_string);
            let scalar = axis.scalar.as_ref().and_then(|name| op.scalars.iter().find(|s| &s.name == name));
            let number = scalar.map(|s| self.scalars.get(&s.name).copied().or(s.default).unwrap_or(s.min));
            let counted = number.and_then(|n| axis.values.get(n as usize)).map(|v| v.value.clone());
            if let Some(value) = extent.or(counted) {
                self.axes.insert(axis.name.clone(), value);
            }
        }
    }

    fn dtype(&self, tensor: &parbake_model::op::Tensor) -> DType {
        let named = tensor.axis.as_ref().and_then(|axis| self.axes.get(axis)).and_then(|v| DType::named(v));
        named.or(tensor.dtype).expect("bug: a tensor's type is an axis that has a value, or fixed")
    }

    /// Lays out a tensor; its bytes are poison.
    fn lay_out(&self, def: &parbake_model::op::Tensor) -> Plan {
        let dtype = self.dtype(def);
        let width = dtype.bytes();
        let value = |extent: Extent| extent.value(&mut |symbol| self.dims.get(symbol).copied());
        let extents = def.extents().into_iter().map(value).map(|n| n.expect("bug: every symbol has a legal value"));
        let shape: Vec<i64> = extents.collect();
        let mut strides = vec![1i64; shape.len()];
        for i in (0..shape.len().saturating_sub(1)).rev() {
            // Rows of a tensor with any strides lie apart too.
            let free = i + def.dense.max(1) + 1 == shape.len();
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
        let end = places.iter().max().map_or(first, |last| last + width) + GUARD;
        Plan { dtype, shape, strides, first, places, bytes: vec![POISON; end] }
    }

    /// Lays out and fills the tensors that are given; those that are not stay empty. Inputs are normally distributed and
    /// rounded, or what the op's reference draws; outputs are poisoned.
    fn place(&self, def: &Op, binding: &Binding, scalars: &[f64], place: Place) -> Result<Vec<Option<Placed>>, Error> {
        let mut random = Random::new(self.seed);
        let given = |t: &&parbake_model::op::Tensor| !t.optional || self.with.contains(&t.name);
        let mut plans: Vec<Option<Plan>> = def.tensors.iter().map(|t| given(&t).then(|| self.lay_out(t))).collect();
        let mut drawn = BTreeMap::new();
        for (t, plan) in def.tensors.iter().zip(&plans).filter(|(t, _)| t.role != Role::Out) {
            let Some(plan) = plan else { continue };
            let mut value = || if plan.dtype.is_float() { random.normal() } else { 0.0 };
            drawn.insert(t.name.clone(), plan.places.iter().map(|_| value()).collect::<Vec<_>>());
        }
        if let Some(draw) = binding.draw {
            let named = def.scalars.iter().zip(scalars).map(|(s, v)| (s.name.clone(), *v)).collect();
            let mut all = Draw { dims: &self.dims, scalars: &named, tensors: drawn, random: &mut random };
            draw(&mut all);
            drawn = all.tensors;
        }
        let mut placed = Vec::new();
        for (t, plan) in def.tensors.iter().zip(&mut plans) {
            let Some(plan) = plan else {
                placed.push(None);
                continue;
            };
            for (&at, value) in plan.places.iter().zip(drawn.get(&t.name).into_iter().flatten()) {
                plan.dtype.store(*value, &mut plan.bytes[at..at + plan.dtype.bytes()]);
            }
            let mut memory = Memory::new(place, &plan.bytes)?;
            let data = (memory.pointer() as usize + plan.first) as *mut std::ffi::c_void;
            let tensor = Tensor::new(data, plan.dtype, &plan.shape, &plan.strides);
            let tensor = tensor.expect("bug: op.toml declares too many dimensions");
            let (before, places) = (std::mem::take(&mut plan.bytes), std::mem::take(&mut plan.places));
            placed.push(Some(Placed { memory, before, tensor, places }));
        }
        Ok(placed)
    }

    /// Its arguments, in memory of the place.
    ///
    /// # Errors
    /// A shape symbol without a legal value; what allocating fails with.
    pub(crate) fn arguments(&self, library: &Library, op: OpId, place: Place) -> Result<Arguments, Error> {
        let def = library.definition(op);
        let binding = library.binding(op)?;
        self.complete(def)?;
        let scalar = |s: &parbake_model::op::Scalar| self.scalars.get(&s.name).copied().or(s.default).unwrap_or(s.min);
        let scalars: Vec<f64> = def.scalars.iter().map(scalar).collect();
        let placed = self.place(def, binding, &scalars, place)?;
        let tensors = placed.iter().map(|p| p.as_ref().map_or(Tensor::ABSENT, |p| p.tensor)).collect();
        Ok(Arguments { placed, tensors, scalars })
    }

    /// Runs the op and compares.
    ///
    /// # Errors
    /// If the op could not be run; a wrong result is no error but an [`Outcome`] that is not `ok`.
    pub fn run(&self, library: &Library, op: OpId, place: Place) -> Result<Outcome, Error> {
        self.run_with(library, op, place, None)
    }

    /// [`Trial::run`] with the one tactic that may be taken.
    pub(crate) fn run_with(
        &self,
        library: &Library,
        op: OpId,
        place: Place,
        only: Option<&Tactic>,
    ) -> Result<Outcome, Error> {
        let def = library.definition(op);
        let binding = library.binding(op)?;
        let Arguments { mut placed, tensors, scalars } = self.arguments(library, op, place)?;
        let also = Also { only, ..Also::default() };
        placed.iter_mut().flatten().for_each(|p| p.watch(place, true));
        // SAFETY: the memory of every tensor lives until it is read back below.
        let called = unsafe { library.call_with(op, &tensors, &scalars, place, Stream::DEFAULT, also) };
        placed.iter_mut().flatten().for_each(|p| p.watch(place, false));
        let called = called?;
        let after = placed.iter().map(|p| p.as_ref().map_or(Ok(Vec::new()), |p| p.memory.read()));
        let after = after.collect::<Result<Vec<_>, _>>()?;

        let values = |p: &Placed| p.places.iter().map(|&at| p.tensor.dtype.load(&p.before[at..])).collect::<Vec<f64>>();
        let inputs = def.tensors.iter().zip(&placed).filter(|(t, _)| t.role != Role::Out);
        let inputs = inputs.filter_map(|(t, p)| Some((t.name.clone(), values(p.as_ref()?)))).collect();
        let problem = library.problem(op, &tensors, &scalars, inputs)?;
        let mut judge = Judge::default();
        for expected in (binding.reference)(&problem) {
            let i = def.tensors.iter().position(|t| t.name == expected.name).expect("bug: a reference of another op");
            // Of an optional output that is not given nothing is expected.
            let Some(placed) = &placed[i] else { continue };
            let (dtype, bytes) = (tensors[i].dtype, &after[i]);
            let got = placed.places.iter().map(|&at| dtype.load(&bytes[at..]));
            judge.compare(expected.name, &expected.values, &expected.rule, dtype, got, def.tolerance[&dtype]);
        }
        for ((t, p), bytes) in def.tensors.iter().zip(&placed).zip(&after) {
            if let Some(p) = p {
                judge.untouched(&t.name, t.role, p, bytes);
            }
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
        rule: &Rule,
        dtype: DType,
        got: impl ExactSizeIterator<Item = f64>,
        tolerance: Tolerance,
    ) {
        if *rule == Rule::Free {
            return;
        }
        if expected.len() != got.len() {
            self.complain(|| format!("`{name}`: the reference has {} elements of {}", expected.len(), got.len()));
            return;
        }
        let exact = *rule != Rule::Close;
        for (i, (&want, got)) in expected.iter().zip(got).enumerate() {
            if let Rule::OneOf(allowed) = rule {
                if !allowed[i].iter().any(|a| dtype.round(*a) == got) {
                    self.complain(|| format!("`{name}` element {i}: expected one of {:?}, got {got:e}", allowed[i]));
                }
                continue;
            }
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
