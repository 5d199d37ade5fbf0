//! The binding layer of an op: what its `launch.rs` receives, and what it returns.
//!
//! A launcher receives arguments that were validated against `op.toml`; it chooses tactics and fills the parameter
//! struct. It allocates nothing and calls no driver.

pub use crate::check::Wrong;
pub use crate::random::Random;
pub use crate::tensor::Tensor;
pub use crate::tensor_map::TensorMap;
use parbake_model::dtype::DType;
use parbake_model::op::Op;
use parbake_model::snippet::MAX_PARAMS;
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
    /// Leaves those that are wanted.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&Tactic) -> bool) {
        let all = std::mem::take(self);
        for tactic in all.as_slice().iter().filter(|t| wanted(t)) {
            self.push(&tactic.0);
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
    pub(crate) values: [u64; MAX_PARAMS],
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
    /// Whether an optional tensor was given. One that was not has no memory and no shape.
    ///
    /// # Panics
    /// If the op declares none.
    #[must_use]
    pub fn given(&self, name: &str) -> bool {
        !self.tensor(name).is_absent()
    }
    /// The value of a scalar of type `f32`.
    ///
    /// # Panics
    /// If the op declares none.
    #[must_use]
    pub fn scalar(&self, name: &str) -> f32 {
        self.number(name) as f32
    }
    /// The value of a scalar that is an integer.
    ///
    /// # Panics
    /// If the op declares none.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        self.number(name) as i64
    }
    /// The value of a scalar of type `bool`.
    ///
    /// # Panics
    /// If the op declares none.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.number(name) != 0.0
    }
    /// The values of a snippet's parameters, in the order of their names: addresses, or the bits of numbers.
    #[must_use]
    pub fn values(&self) -> [u64; MAX_PARAMS] {
        self.values
    }
    fn number(&self, name: &str) -> f64 {
        let i = self.op.scalars.iter().position(|s| s.name == name);
        self.scalars[i.unwrap_or_else(|| panic!("bug: `{}` has no scalar `{name}`", self.op.name))]
    }
}

/// What divides by `divisor` on the device, as parbake/math.cuh says: magic and shift.
pub(crate) fn divider(divisor: u32) -> (u32, u32) {
    let log = divisor.next_power_of_two().trailing_zeros();
    (((1u64 << (31 + log)) / u64::from(divisor) + 1) as u32, 31 + log)
}

/// Room for the largest parameter struct: several tensor maps and their surroundings.
const PARAMS_WORDS: usize = 72;

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
    /// Blocks of a cluster, along x; 1 where there are no clusters.
    pub cluster: u32,
    /// Tensor maps that the struct begins with, as descriptions.
    pub maps: u32,
    /// Bytes of the struct if its fields are parameters of their own, at their places; 0 if it is the one parameter.
    pub plain: usize,
}

impl Launch {
    /// A launch without shared memory and without clusters.
    #[must_use]
    pub fn new(params: Params, grid: [u32; 3], threads: u32) -> Self {
        Self { params, grid, block: [threads, 1, 1], shared: 0, cluster: 1, maps: 0, plain: 0 }
    }
    /// With dynamic shared memory.
    #[must_use]
    pub fn shared(self, bytes: u32) -> Self {
        Self { shared: bytes, ..self }
    }
    /// Of a kernel in Triton: it takes the fields of the struct one by one, where a kernel in CUDA C++ takes the struct.
    #[must_use]
    pub fn plain<T: Copy>(params: T, grid: [u32; 3], threads: u32) -> Self {
        Self { plain: size_of::<T>(), ..Self::new(Params::new(params), grid, threads) }
    }
    /// With so many descriptions of tensor maps at the beginning of the struct, which the launch replaces by maps.
    #[must_use]
    pub fn maps(self, count: u32) -> Self {
        Self { maps: count, ..self }
    }
    /// With clusters of so many blocks, which divide the grid along x.
    #[must_use]
    pub fn cluster(self, blocks: u32) -> Self {
        Self { cluster: blocks, ..self }
    }
}

/// A problem for the float64 reference. Values are exact; arrays are dense, the last dimension fastest.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Shape symbol → value.
    pub dims: BTreeMap<String, i64>,
    /// Scalar → value.
    pub scalars: BTreeMap<String, f64>,
    /// Tensor that is read and given → values.
    pub inputs: BTreeMap<String, Vec<f64>>,
    /// The element type of the first output.
    pub dtype: DType,
    /// Tensor that is given → element type.
    pub dtypes: BTreeMap<String, DType>,
}

/// Inputs of a trial that an op chooses itself, because not every value means something.
#[derive(Debug)]
pub struct Draw<'a> {
    /// Shape symbol → value.
    pub dims: &'a BTreeMap<String, i64>,
    /// Scalar → value.
    pub scalars: &'a BTreeMap<String, f64>,
    /// Tensor that is read and given → values, to be overwritten: normally distributed where they are floats, else 0.
    /// They are rounded to the element type afterwards.
    pub tensors: BTreeMap<String, Vec<f64>>,
    /// Where chance comes from.
    pub random: &'a mut Random,
}

/// What a tensor that is written must hold.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The tensor.
    pub name: &'static str,
    /// Its values before rounding to the element type.
    pub values: Vec<f64>,
    /// How they are compared.
    pub rule: Rule,
}

/// How values are compared with what they must be.
#[derive(Clone, PartialEq, Debug)]
pub enum Rule {
    /// Within the op's tolerance.
    Close,
    /// Bit for bit after rounding, whatever the tolerance.
    Exact,
    /// Each is the expected one or one of these.
    OneOf(Vec<Vec<f64>>),
    /// Not at all: somebody else checks them.
    Free,
}

impl Expected {
    /// Values within the op's tolerance.
    #[must_use]
    pub fn close(name: &'static str, values: Vec<f64>) -> Self {
        Self { name, values, rule: Rule::Close }
    }
    /// Values bit for bit, after rounding.
    #[must_use]
    pub fn exact(name: &'static str, values: Vec<f64>) -> Self {
        Self { name, values, rule: Rule::Exact }
    }
    /// For each element the values that it may have.
    ///
    /// # Panics
    /// If an element may have none.
    #[must_use]
    pub fn one_of(name: &'static str, allowed: Vec<Vec<f64>>) -> Self {
        let values = allowed.iter().map(|a| *a.first().expect("bug: nothing is allowed")).collect();
        Self { name, values, rule: Rule::OneOf(allowed) }
    }
    /// A tensor that is checked elsewhere.
    #[must_use]
    pub fn free(name: &'static str) -> Self {
        Self { name, values: Vec::new(), rule: Rule::Free }
    }
}

/// Everything of one op that is written in Rust.
pub struct Binding {
    /// The op.
    pub op: &'static str,
    /// Legal tactics for these arguments on this target, best first; never none.
    pub select: fn(&Checked<'_>, Target, &mut Choices),
    /// The launch of a tactic.
    pub arrange: fn(&Checked<'_>, &Tactic) -> Launch,
    /// Rules over several arguments.
    pub check: Option<fn(&Checked<'_>, &mut Wrong)>,
    /// The float64 reference.
    pub reference: fn(&Problem) -> Vec<Expected>,
    /// Inputs that mean something.
    pub draw: Option<fn(&mut Draw<'_>)>,
}

#[cfg(test)]
mod tests {
    use super::divider;

    #[test]
    fn division_by_multiplication_is_exact() {
        for divisor in (1..=3000).chain([4095, 4096, 4097, 65_535, 65_536, 1_048_575, 1_048_576]) {
            let (magic, shift) = divider(divisor);
            let multiples = [0, 1, 2, 7, (i32::MAX as u32) / divisor].map(|n| n * divisor);
            let around = multiples.iter().flat_map(|n| [n.saturating_sub(1), *n, n + divisor / 2, n + divisor - 1]);
            for n in around.filter(|n| *n <= i32::MAX as u32).chain([i32::MAX as u32]) {
                assert_eq!((u64::from(n) * u64::from(magic)) >> shift, u64::from(n / divisor), "{n} / {divisor}");
            }
        }
    }
}
