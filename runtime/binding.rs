//! The binding layer of an op: what its `launch.rs` receives, and what it returns.
//!
//! A launcher receives arguments that were validated against `op.toml`; it chooses tactics and fills the parameter
//! struct. It allocates nothing and calls no driver.

pub use crate::tensor::Tensor;
use parbake_model::dtype::DType;
use parbake_model::op::Op;
pub use parbake_model::target::Target;
use std::collections::BTreeMap;

/// The most tactics an op may have.
pub const MAX_TACTICS: usize = 4;

/// A value for each of the op's tactics, in its order; unused places are 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tactic(pub [u32; MAX_TACTICS]);

/// Legal tactics, best first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices {
    list: [Tactic; 16],
    len: usize,
}

impl Choices {
    /// Adds the next best.
    ///
    /// # Panics
    /// Beyond sixteen: a launcher that offers more has no order worth the name.
    pub fn push(&mut self, values: &[u32]) {
        let mut tactic = Tactic::default();
        tactic.0[..values.len()].copy_from_slice(values);
        if !self.list[..self.len].contains(&tactic) {
            self.list[self.len] = tactic;
            self.len += 1;
        }
    }
    /// Puts one of them first.
    pub(crate) fn prefer(&mut self, tactic: &Tactic) {
        if let Some(i) = self.as_slice().iter().position(|t| t == tactic) {
            self.list[..=i].rotate_right(1);
        }
    }
    /// The choices, best first.
    #[must_use]
    pub fn as_slice(&self) -> &[Tactic] {
        &self.list[..self.len]
    }
}

/// Arguments that were checked against the op's signature.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    pub(crate) op: &'a Op,
    pub(crate) tensors: &'a [Tensor],
    pub(crate) scalars: &'a [f64],
    pub(crate) dims: &'a [i64],
}

impl Checked<'_> {
    /// The tensor of that name.
    ///
    /// # Panics
    /// If the op declares none: a launcher that disagrees with its `op.toml` is a bug.
    #[must_use]
    pub fn tensor(&self, name: &str) -> &Tensor {
        let i = self.op.tensors.iter().position(|t| t.name == name);
        &self.tensors[i.unwrap_or_else(|| panic!("bug: `{}` has no tensor `{name}`", self.op.name))]
    }
    /// The value of a shape symbol.
    ///
    /// # Panics
    /// If the op declares none.
    #[must_use]
    pub fn dim(&self, name: &str) -> i64 {
        let i = self.op.dims.iter().position(|d| d.name == name);
        self.dims[i.unwrap_or_else(|| panic!("bug: `{}` has no dim `{name}`", self.op.name))]
    }
    /// The value of a scalar.
    ///
    /// # Panics
    /// If the op declares none.
    #[must_use]
    pub fn scalar(&self, name: &str) -> f32 {
        let i = self.op.scalars.iter().position(|s| s.name == name);
        self.scalars[i.unwrap_or_else(|| panic!("bug: `{}` has no scalar `{name}`", self.op.name))] as f32
    }
}

/// Room for the largest parameter struct: several tensor maps and their surroundings.
const PARAMS_WORDS: usize = 64;

/// A parameter struct, by value.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Params(pub(crate) [u64; PARAMS_WORDS]);

impl Params {
    /// Copies a struct of the generated bindings.
    #[must_use]
    pub fn new<T: Copy>(value: T) -> Self {
        const { assert!(size_of::<T>() <= 8 * PARAMS_WORDS && align_of::<T>() <= 64) }
        let mut params = Self([0; PARAMS_WORDS]);
        // SAFETY: the destination is large and aligned enough, as just asserted; `T` is plain data.
        unsafe { std::ptr::write(params.0.as_mut_ptr().cast::<T>(), value) };
        params
    }
}

/// How to launch: the grid in blocks, the block in threads.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The parameter struct.
    pub params: Params,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
}

/// A problem for the float64 reference. Values are exact; arrays are dense, the last dimension fastest.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Shape symbol → value.
    pub dims: BTreeMap<String, i64>,
    /// Scalar → value.
    pub scalars: BTreeMap<String, f64>,
    /// Tensor that is read → values.
    pub inputs: BTreeMap<String, Vec<f64>>,
    /// The element type of the outputs.
    pub dtype: DType,
}

/// What a tensor that is written must hold.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The tensor.
    pub name: &'static str,
    /// Its values before rounding to the element type.
    pub values: Vec<f64>,
    /// Whether the rounded values must match bit for bit, whatever the tolerance.
    pub exact: bool,
}

/// Everything of one op that is written in Rust.
pub struct Binding {
    /// The op.
    pub op: &'static str,
    /// Legal tactics for these arguments on this target, best first; never none.
    pub select: fn(&Checked<'_>, Target, &mut Choices),
    /// The launch of a tactic.
    pub arrange: fn(&Checked<'_>, &Tactic) -> Launch,
    /// The float64 reference.
    pub reference: fn(&Problem) -> Vec<Expected>,
}
