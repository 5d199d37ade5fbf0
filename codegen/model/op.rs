//! What `op.toml` declares. The same types are written to and read from the generated op manifest, so that a runtime
//! without the generator knows every op.

use crate::dtype::DType;
use crate::extent::Extent;
use crate::language::Language;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One public operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Op {
    /// Public name, also the folder's name: `rmsnorm`.
    pub name: String,
    /// The folder above: `norm`.
    pub family: String,
    /// One line for lists.
    pub summary: String,
    /// Functions of other libraries that it answers to: `flashinfer.norm.rmsnorm`.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// What its kernels are written in.
    #[serde(default, skip_serializing_if = "Language::is_cuda")]
    pub language: Language,
    /// Name of the parameter struct in `params.h`.
    pub params: String,
    /// Oldest architecture that it is written for; every newer one is supported unless an exclusion says otherwise.
    pub since: Target,
    /// Whether it runs on the host target.
    pub host: bool,
    /// Whether `launch.rs` has rules over several arguments: a function `check`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checks: bool,
    /// Whether `reference.rs` chooses inputs that mean something, such as page tables: a function `draw`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draws: bool,
    /// The public functions of `api.py`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api: Vec<String>,
    /// Specialisation parameters, in URI order.
    #[serde(rename = "axis", default)]
    pub axes: Vec<Axis>,
    /// Tuning choices, in URI order.
    #[serde(rename = "tactic", default)]
    pub tactics: Vec<Tactic>,
    /// Which combinations do not exist, and why.
    #[serde(rename = "exclude", default)]
    pub excludes: Vec<Exclude>,
    /// The tactic that serves most shapes, per architecture: the last row whose `since` a target reaches.
    #[serde(rename = "default_tactic", default)]
    pub default_tactics: Vec<DefaultTactic>,
    /// Compile options that change what the kernel computes or how it is built.
    #[serde(default)]
    pub options: Options,
    /// Shape symbols and their ranges.
    #[serde(rename = "dim", default)]
    pub dims: Vec<Dim>,
    /// Tensors in call order: outputs, then inputs.
    #[serde(rename = "tensor", default)]
    pub tensors: Vec<Tensor>,
    /// Scalars, after the tensors.
    #[serde(rename = "scalar", default)]
    pub scalars: Vec<Scalar>,
    /// Allowed error against the rounded float64 reference, per element type of the output.
    pub tolerance: BTreeMap<DType, Tolerance>,
    /// The trace template.
    pub trace: Trace,
}

/// A function of another library, and the arguments that make this op equal to it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Qualified name.
    pub name: String,
    /// Scalars and element types that are fixed for this peer: `weight_bias = 1.0`, `activation = "silu"`.
    #[serde(default)]
    pub fixed: BTreeMap<String, Constant>,
    /// Its arguments, in its order: they become those of the Python function of the same name. Empty: there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
    /// The arguments that it returns, outputs that are allocated if they are not given: one name, or several. Outputs
    /// that are no arguments are always allocated and returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_more")]
    pub returns: Vec<String>,
}

/// What an argument is fixed to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Constant {
    /// A scalar's value.
    Number(f64),
    /// The name of an axis's value.
    Name(String),
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// A name, or a list of names.
fn one_or_more<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Names {
        One(String),
        More(Vec<String>),
    }
    Ok(match Names::deserialize(from)? {
        Names::One(name) => vec![name],
        Names::More(names) => names,
    })
}

/// An argument of a peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// What the peer calls it.
    pub name: String,
    /// The tensor or scalar that it is, if that has another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    /// Why it is accepted and has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
}

/// A specialisation parameter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name, as typed by users: `dtype`.
    pub name: String,
    /// One line.
    pub summary: String,
    /// What precedes the value in the URI.
    #[serde(default)]
    pub prefix: String,
    /// The legal values.
    pub values: Vec<AxisValue>,
    /// The shape symbol whose value it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dim: Option<String>,
    /// The scalar that chooses a value, counted from 0. Without `dim` and `scalar` it is the element type of tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalar: Option<String>,
    /// That a caller's own source may be its value, and what that is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Open>,
}

/// What a snippet is to an axis that is open to it. The scalar of the axis chooses one by the number that it was given, which
/// is beyond those of the values.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// As written in the rendered source.
    pub cpp: String,
    /// Function → its body where a snippet has none.
    pub functions: BTreeMap<String, String>,
}

/// A legal value of an axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisValue {
    /// As typed by users and written in URIs.
    pub value: String,
    /// As written in the rendered source.
    pub cpp: String,
}

/// A tuning choice that does not change the contract.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tactic {
    /// Name: `block`.
    pub name: String,
    /// One line.
    pub summary: String,
    /// What precedes the value in the URI.
    #[serde(default)]
    pub prefix: String,
    /// The values it may take.
    pub values: Vec<u32>,
}

/// A set of combinations that do not exist.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclude {
    /// Axis or tactic → values; a combination is meant if it agrees with every entry. Empty: every combination.
    #[serde(default)]
    pub when: BTreeMap<String, Vec<Value>>,
    /// Axis or tactic → values; a combination is not meant after all if it agrees with every entry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unless: BTreeMap<String, Vec<Value>>,
    /// Only on GPU architectures below this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Target>,
    /// On every target but this one, the host target among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<Target>,
    /// Why.
    pub reason: String,
}

impl Exclude {
    /// Where the combinations do not exist, and which of them do, in words; none: nowhere, and none.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let words = |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        let below = self.below.map(|target| format!("below {target}"));
        let except = self.except.map(|target| format!("except on {target}"));
        let unless = self.unless.iter().map(|(name, values)| format!("unless {name} is {}", words(values)));
        let all: Vec<_> = below.into_iter().chain(except).chain(unless).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// A value of an axis (text) or of a tactic (number).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Of a tactic.
    Number(u32),
    /// Of an axis.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Text(t) => t.fmt(f),
        }
    }
}

/// The tactic that serves most shapes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultTactic {
    /// Oldest architecture it is meant for; the host takes the first row.
    pub since: Target,
    /// A value for every tactic.
    pub tactic: BTreeMap<String, u32>,
}

/// Semantic compile options. Each toolchain spells them in its own way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Approximate division, square root and transcendental functions, subnormals flushed.
    #[serde(default)]
    pub fast_math: bool,
    /// Upper bound on registers per thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_registers: Option<u32>,
}

impl Options {
    /// Name and value of each option, for keys.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let registers = self.max_registers.map_or("none".to_owned(), |n| n.to_string());
        vec![("fast_math", self.fast_math.to_string()), ("max_registers", registers)]
    }
}

/// A shape symbol.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dim {
    /// Name: `hidden`.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Smallest legal value.
    pub min: i64,
    /// Largest legal value.
    pub max: i64,
    /// Whether several leading dimensions of a tensor may stand for it, where their strides let them be one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub folds: bool,
}

/// Which way a tensor's data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read.
    In,
    /// Written entirely.
    Out,
    /// Read, then overwritten.
    InOut,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "in",
            Self::Out => "out",
            Self::InOut => "in and out",
        })
    }
}

/// A tensor argument.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Name.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Which way its data goes.
    pub role: Role,
    /// The axis that gives its element type; exactly one of `axis` and `dtype` is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// Its fixed element type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// Extents: shape symbols, or expressions of them (see [`crate::extent`]).
    pub shape: Vec<String>,
    /// How many trailing dimensions must be dense; the strides of the others are free.
    pub dense: usize,
    /// Tensors that may be the very same memory (same pointer, same strides).
    #[serde(default)]
    pub may_be: Vec<String>,
    /// Whether it may be absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl Tensor {
    /// Its extents.
    ///
    /// # Panics
    /// If one is no expression: a definition is checked when it is read.
    #[must_use]
    pub fn extents(&self) -> Vec<Extent> {
        self.shape.iter().map(|e| Extent::parse(e).expect("bug: checked with the definition")).collect()
    }
}

/// The type of a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScalarType {
    /// A number, rounded to `f32`.
    #[default]
    F32,
    /// An integer of 32 bits.
    I32,
    /// An integer between ±(2^53 − 1): those that a double holds.
    I64,
    /// 0 or 1.
    Bool,
}

impl ScalarType {
    /// The name in `op.toml` and on pages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Bool => "bool",
        }
    }
    /// The smallest and the largest value.
    #[must_use]
    pub fn range(self) -> (f64, f64) {
        const EXACT: f64 = 9_007_199_254_740_991.0;
        match self {
            Self::F32 => (-f64::from(f32::MAX), f64::from(f32::MAX)),
            Self::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
            Self::I64 => (-EXACT, EXACT),
            Self::Bool => (0.0, 1.0),
        }
    }
    /// The value that a kernel gets for it.
    #[must_use]
    #[inline]
    pub fn rounded(self, value: f64) -> f64 {
        if self == Self::F32 { f64::from(value as f32) } else { value }
    }
    /// A value as people write it: `1e-6`, `2147483647`.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        let plain = self.is_whole() || value == 0.0 || (1e-3..1e7).contains(&value.abs());
        if plain { value.to_string() } else { format!("{value:e}") }
    }
    /// Whether values are whole numbers.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self != Self::F32
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn is_f32(kind: &ScalarType) -> bool {
    *kind == ScalarType::F32
}

/// A scalar argument.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scalar {
    /// Name.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Its type.
    #[serde(rename = "type", default, skip_serializing_if = "is_f32")]
    pub kind: ScalarType,
    /// Taken if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<f64>,
    /// Smallest legal value; NaN is never legal.
    pub min: f64,
    /// Largest legal value.
    pub max: f64,
}

impl Scalar {
    /// Which values are legal, in words; a bound that its type has anyway is not worth one.
    #[must_use]
    pub fn range(&self) -> String {
        let (least, most) = self.kind.range();
        let (min, max) = (self.kind.text(self.min), self.kind.text(self.max));
        match (self.min > least, self.max < most) {
            _ if self.kind == ScalarType::Bool => format!("{min} or {max}"),
            (false, false) => "any".to_owned(),
            (true, false) => format!("at least {min}"),
            (false, true) => format!("at most {max}"),
            (true, true) => format!("{min} to {max}"),
        }
    }
}

/// An allowed error: an element is right if any one of the bounds that are given holds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Tolerance {
    /// Units in the last place of the output type, around the rounded reference.
    Ulp {
        /// How many.
        ulp: f64,
    },
    /// `abs + rel · |reference|`.
    AbsRel {
        /// The absolute part.
        abs: f64,
        /// The relative part.
        rel: f64,
    },
}

impl Tolerance {
    /// Whether it bounds anything: each part is finite and not negative.
    #[must_use]
    pub fn is_finite(self) -> bool {
        let good = |v: f64| v.is_finite() && v >= 0.0;
        match self {
            Self::Ulp { ulp } => good(ulp),
            Self::AbsRel { abs, rel } => good(abs) && good(rel),
        }
    }

    /// The largest allowed distance from `reference`.
    #[must_use]
    pub fn bound(self, dtype: DType, reference: f64) -> f64 {
        match self {
            Self::Ulp { ulp } => ulp * dtype.ulp(dtype.round(reference)),
            Self::AbsRel { abs, rel } => abs + rel * reference.abs(),
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ulp { ulp } => write!(f, "{ulp} ulp"),
            Self::AbsRel { abs, rel } => write!(f, "{abs:e} + {rel:e}·|ref|"),
        }
    }
}

/// The trace template: how a call of this op is described to tools that exchange workloads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The exchange format's kind of operation.
    pub op_type: String,
    /// Definition names start with it.
    pub name_prefix: String,
    /// Shape symbols that are constant within a definition, with what precedes their value in its name.
    #[serde(default)]
    pub constants: BTreeMap<String, String>,
    /// Further tags, `stage:decode`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Optional tensors that a definition has all the same, because without them there is no such call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
    /// Realistic shapes; the first is what `run` takes if no shape is given.
    #[serde(rename = "example")]
    pub examples: Vec<BTreeMap<String, i64>>,
}

impl Op {
    /// `norm/rmsnorm`, what `--op` globs match.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.family, self.name)
    }
    /// The folder's template, relative to the kernel tree.
    #[must_use]
    pub fn template(&self) -> String {
        format!("{}/{}.{}.tera", self.path(), self.name, self.language.extension())
    }
    /// The shape symbol of that name.
    #[must_use]
    pub fn dim(&self, name: &str) -> Option<&Dim> {
        self.dims.iter().find(|d| d.name == name)
    }
}
