//! Checks arguments against the op's signature, before any kernel is looked for. All violations are collected.

use crate::binding::Checked;
use crate::tensor::Tensor;
use parbake_model::dtype::DType;
use parbake_model::extent::Extent;
use parbake_model::op::{Op, Role};
use parbake_model::report::{Class, Report};
use parbake_model::snippet::MAX_PARAMS;

/// One argument that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The argument.
    pub argument: String,
    /// What is wrong with it, in one word or two: `dtype`, `shape`, `stride`.
    pub what: &'static str,
    /// What was expected.
    pub expected: String,
    /// What came.
    pub got: String,
}

/// Arguments that do not fit an op.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadArguments {
    /// The op.
    pub op: String,
    /// Everything that is wrong.
    pub violations: Vec<Violation>,
}

impl BadArguments {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let many = if self.violations.len() == 1 { "an argument does" } else { "arguments do" };
        let mut report =
            Report::new("PB-2001", Class::Usage, format!("{}: {many} not fit; nothing was launched", self.op));
        for v in &self.violations {
            report = report.with(&v.argument, format!("{}: expected {}, got {}", v.what, v.expected, v.got));
        }
        report.help(format!("`parbake ops {}` shows the signature", self.op))
    }
}

/// Everything that is wrong with a call's arguments; it grows only if something is.
#[derive(Debug, Default)]
pub struct Wrong(pub(crate) Vec<Violation>);

impl Wrong {
    /// Notes an argument that is wrong: what of it, in one word or two, what was expected, and what came.
    pub fn add(&mut self, argument: &str, what: &'static str, expected: impl Into<String>, got: impl Into<String>) {
        self.0.push(Violation { argument: argument.to_owned(), what, expected: expected.into(), got: got.into() });
    }
    pub(crate) fn result(self, op: &Op) -> Result<(), BadArguments> {
        if self.0.is_empty() { Ok(()) } else { Err(BadArguments { op: op.name.clone(), violations: self.0 }) }
    }
}

/// The most shape symbols and axes that an op may have: a check allocates nothing.
const MAX_SYMBOLS: usize = 16;

/// The values found by a check that passed.
#[derive(Debug)]
pub(crate) struct Bound {
    dims: [i64; MAX_SYMBOLS],
    axes: [usize; MAX_SYMBOLS],
}

impl Bound {
    /// The value's place on each axis, in the op's order.
    pub(crate) fn axes(&self, op: &Op) -> &[usize] {
        &self.axes[..op.axes.len()]
    }
}

/// Where the names in an op's signature lead: a call compares numbers, not names.
#[derive(Debug)]
pub(crate) struct Signature {
    tensors: Vec<Declared>,
    /// Axes that do not come from element types: the axis, and where its value comes from.
    axes: Vec<(usize, Source)>,
    /// Whether an extent is more than a symbol.
    expressions: bool,
    /// The axis that is open to snippets.
    pub(crate) open: Option<usize>,
}

#[derive(Debug)]
struct Declared {
    /// The axis that gives the element type, and each type's place among its values.
    axis: Option<(usize, [Option<usize>; DType::ALL.len()])>,
    /// The extents.
    dims: Vec<Declaration>,
}

/// An extent that a tensor must have.
#[derive(Debug)]
enum Declaration {
    /// That of a symbol.
    Symbol(usize),
    /// That of an expression, and the symbol that it may bind: `factor * symbol + rest`.
    Expression(Extent, Option<(usize, i64, i64)>),
}

/// Where the value of an axis comes from.
#[derive(Debug)]
enum Source {
    /// A shape symbol, and the extents of the axis' values.
    Dim(usize, Vec<i64>),
    /// A scalar that counts them.
    Scalar(usize),
}

impl Signature {
    /// Of a definition that was checked.
    pub(crate) fn of(op: &Op) -> Self {
        let dim =
            |symbol: &str| op.dims.iter().position(|d| d.name == symbol).expect("bug: checked with the definition");
        let axis = |name: &String| {
            let a = op.axes.iter().position(|x| &x.name == name).expect("bug: checked with the definition");
            let place = |t: DType| op.axes[a].values.iter().position(|v| v.value == t.name());
            (a, DType::ALL.map(place))
        };
        let declaration = |extent: Extent| match extent.symbol() {
            Some(symbol) => Declaration::Symbol(dim(symbol)),
            None => {
                let binds = extent.binds().map(|b| (dim(b.symbol), b.factor, b.rest));
                Declaration::Expression(extent, binds)
            }
        };
        let declared = |t: &parbake_model::op::Tensor| Declared {
            axis: t.axis.as_ref().map(axis),
            dims: t.extents().into_iter().map(declaration).collect(),
        };
        let source = |a: &parbake_model::op::Axis| match (&a.dim, &a.scalar) {
            (Some(symbol), _) => {
                let values = a.values.iter().map(|v| v.value.parse().expect("bug: checked with the definition"));
                Some(Source::Dim(dim(symbol), values.collect()))
            }
            (_, Some(name)) => op.scalars.iter().position(|s| &s.name == name).map(Source::Scalar),
            _ => None,
        };
        let tensors: Vec<Declared> = op.tensors.iter().map(declared).collect();
        Self {
            open: op.axes.iter().position(|a| a.open.is_some()),
            expressions: tensors.iter().flat_map(|t| &t.dims).any(|d| matches!(d, Declaration::Expression(..))),
            axes: op.axes.iter().enumerate().filter_map(|(i, a)| Some((i, source(a)?))).collect(),
            tensors,
        }
    }
}

/// Checks tensors and scalars given in the op's order, then by the rules of its launcher.
pub(crate) fn check(
    op: &Op,
    signature: &Signature,
    rules: Option<fn(&Checked<'_>, &mut Wrong)>,
    tensors: &[Tensor],
    scalars: &[f64],
) -> Result<Bound, BadArguments> {
    let mut wrong = Wrong::default();
    if tensors.len() != op.tensors.len() || scalars.len() != op.scalars.len() {
        let expected = format!("{} tensors and {} scalars", op.tensors.len(), op.scalars.len());
        wrong.add("call", "count", expected, format!("{} and {}", tensors.len(), scalars.len()));
        return Err(BadArguments { op: op.name.clone(), violations: wrong.0 });
    }
    let mut dims = [None; MAX_SYMBOLS];
    let mut axes: [Option<usize>; MAX_SYMBOLS] = [None; MAX_SYMBOLS];
    for ((def, declared), tensor) in op.tensors.iter().zip(&signature.tensors).zip(tensors) {
        let name = &def.name;
        if tensor.is_absent() {
            if !def.optional {
                wrong.add(name, "type", "a tensor", "nothing");
            }
            continue;
        }
        check_dtype(op, def, declared, tensor, &mut axes, &mut wrong);
        if tensor.shape().len() != def.shape.len() {
            let expected = format!("{} dimensions [{}]", def.shape.len(), def.shape.join(", "));
            wrong.add(name, "rank", expected, format!("{:?}", tensor.shape()));
            continue;
        }
        for (declared, &extent) in declared.dims.iter().zip(tensor.shape()) {
            if let Declaration::Symbol(i) = *declared {
                bind(op, name, i, (extent, extent), &mut dims, &mut wrong);
            }
        }
        check_memory(def.dense, def.role, name, tensor, &mut wrong);
    }
    if signature.expressions && wrong.0.is_empty() {
        check_expressions(op, signature, tensors, &mut dims, &mut wrong);
    }
    for (def, &value) in op.scalars.iter().zip(scalars) {
        if !(value >= def.min && value <= def.max) {
            wrong.add(&def.name, "value", format!("{} to {}", def.min, def.max), value.to_string());
        } else if def.kind.is_whole() && value.fract() != 0.0 {
            wrong.add(&def.name, "value", "a whole number", value.to_string());
        }
    }
    if wrong.0.is_empty() {
        for (axis, source) in &signature.axes {
            axes[*axis] = match source {
                // In its range, which is that of the values and of the numbers of snippets.
                Source::Scalar(i) => Some(scalars[*i] as usize),
                Source::Dim(i, values) => {
                    let extent = dims[*i].unwrap_or(0);
                    let place = values.iter().position(|v| *v == extent);
                    if place.is_none() {
                        let values: Vec<_> = values.iter().map(i64::to_string).collect();
                        wrong.add(&op.dims[*i].name, "shape", values.join(" or "), extent.to_string());
                    }
                    place
                }
            };
        }
        check_aliasing(op, tensors, &mut wrong.0);
    }
    let bound = Bound { dims: dims.map(|d| d.unwrap_or(0)), axes: axes.map(|a| a.unwrap_or(0)) };
    if let (Some(rules), true) = (rules, wrong.0.is_empty()) {
        rules(&checked(op, tensors, scalars, &bound, [0; MAX_PARAMS]), &mut wrong);
    }
    wrong.result(op).map(|()| bound)
}

fn check_dtype(
    op: &Op,
    def: &parbake_model::op::Tensor,
    declared: &Declared,
    tensor: &Tensor,
    axes: &mut [Option<usize>; MAX_SYMBOLS],
    wrong: &mut Wrong,
) {
    let name = &def.name;
    match (&declared.axis, def.dtype) {
        (Some((a, places)), _) => {
            let (a, values) = (*a, &op.axes[*a].values);
            match (places[tensor.dtype as usize], axes[a]) {
                (None, _) => {
                    let names: Vec<_> = values.iter().map(|v| v.value.as_str()).collect();
                    wrong.add(name, "dtype", names.join(" or "), tensor.dtype.to_string());
                }
                (Some(i), Some(j)) if i != j => {
                    let expected = format!("{}, as of the tensors before it", values[j].value);
                    wrong.add(name, "dtype", expected, tensor.dtype.to_string());
                }
                (found, _) => axes[a] = found,
            }
        }
        (None, Some(dtype)) if dtype != tensor.dtype => {
            wrong.add(name, "dtype", dtype.to_string(), tensor.dtype.to_string())
        }
        _ => {}
    }
}

/// Notes the value that a dimension says of a symbol.
fn bind(
    op: &Op,
    name: &str,
    i: usize,
    (value, extent): (i64, i64),
    dims: &mut [Option<i64>; MAX_SYMBOLS],
    wrong: &mut Wrong,
) {
    let dim = &op.dims[i];
    let symbol = &dim.name;
    match dims[i] {
        _ if value < dim.min || value > dim.max => {
            let got = if value == extent { value.to_string() } else { format!("{value}, from an extent of {extent}") };
            wrong.add(name, "shape", format!("{symbol} from {} to {}", dim.min, dim.max), got);
        }
        Some(known) if known != value => {
            wrong.add(name, "shape", format!("{symbol} = {known}, as of the tensors before it"), value.to_string());
        }
        _ => dims[i] = Some(value),
    }
}

/// Extents that are more than a symbol: first those that say what a symbol is that nobody said, then all.
fn check_expressions(
    op: &Op,
    signature: &Signature,
    tensors: &[Tensor],
    dims: &mut [Option<i64>; MAX_SYMBOLS],
    wrong: &mut Wrong,
) {
    for comparing in [false, true] {
        for ((def, declared), tensor) in op.tensors.iter().zip(&signature.tensors).zip(tensors) {
            for (declared, &extent) in declared.dims.iter().zip(tensor.shape()) {
                let Declaration::Expression(expression, binds) = declared else { continue };
                if let (false, Some((i, factor, rest))) = (comparing, *binds) {
                    if dims[i].is_none() && (extent - rest) % factor == 0 {
                        bind(op, &def.name, i, ((extent - rest) / factor, extent), dims, wrong);
                    }
                } else if comparing {
                    let mut of = |name: &str| op.dims.iter().position(|d| d.name == name).and_then(|i| dims[i]);
                    let expected = match expression.value(&mut of) {
                        Some(value) if value == extent => continue,
                        Some(value) => format!("{expression} = {value}"),
                        None => expression.to_string(),
                    };
                    wrong.add(&def.name, "shape", expected, extent.to_string());
                }
            }
        }
    }
}

fn check_memory(dense: usize, role: Role, name: &str, tensor: &Tensor, wrong: &mut Wrong) {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    // Strides of dimensions of one element, or of empty tensors, mean nothing.
    let counts = |i: usize| shape[i] > 1 && !tensor.is_empty();
    let mut step = 1;
    for i in (0..shape.len()).rev() {
        let is_dense = i + dense >= shape.len();
        if counts(i) && is_dense && strides[i] != step {
            wrong.add(name, "stride", format!("{step} in dimension {i}: it must be dense"), strides[i].to_string());
        } else if counts(i) && !is_dense && role == Role::In && strides[i] < 0 {
            wrong.add(name, "stride", format!("0 or more in dimension {i}"), strides[i].to_string());
        } else if counts(i) && !is_dense && role != Role::In {
            // In whatever order they lie: each steps over all that those with smaller strides reach.
            let below = |j: &usize| counts(*j) && (strides[*j], i) < (strides[i], *j);
            let reach = |j: usize| (shape[j] - 1).saturating_mul(strides[j].max(0));
            let least = (0..shape.len()).filter(below).map(reach).fold(1i64, i64::saturating_add);
            if strides[i] < least {
                wrong.add(
                    name,
                    "stride",
                    format!("at least {least} in dimension {i}: elements that are written must not overlap"),
                    strides[i].to_string(),
                );
            }
        }
        step = step.saturating_mul(shape[i].max(1));
    }
    if tensor.is_empty() {
        return;
    }
    if tensor.data.is_null() {
        wrong.add(name, "pointer", "memory", "null");
    } else if !(tensor.data as usize).is_multiple_of(tensor.dtype.bytes()) {
        wrong.add(name, "pointer", format!("aligned to {} bytes", tensor.dtype.bytes()), format!("{:p}", tensor.data));
    }
}

fn check_aliasing(op: &Op, tensors: &[Tensor], bad: &mut Vec<Violation>) {
    for (i, (def, a)) in op.tensors.iter().zip(tensors).enumerate() {
        if def.role == Role::In || a.is_empty() {
            continue;
        }
        for (j, (other, b)) in op.tensors.iter().zip(tensors).enumerate() {
            // Two written tensors are looked at once.
            if i == j || other.role != Role::In && j < i || b.is_empty() {
                continue;
            }
            if a.is_apart(b) {
                continue;
            }
            let mut steps = a.shape().iter().zip(a.strides().iter().zip(b.strides()));
            let same = a.data == b.data
                && a.dtype == b.dtype
                && a.shape() == b.shape()
                && steps.all(|(n, (s, t))| *n <= 1 || s == t);
            let allowed = def.may_be.contains(&other.name) || other.may_be.contains(&def.name);
            if !(same && allowed) {
                let expected = if allowed { "no overlap, or the very same memory" } else { "no overlap" };
                bad.push(Violation {
                    argument: def.name.clone(),
                    what: "aliasing",
                    expected: format!("{expected} with `{}`", other.name),
                    got: format!("{:p} and {:p} overlap", a.data, b.data),
                });
            }
        }
    }
}

/// The values a check found, as a launcher sees them.
pub(crate) fn checked<'a>(
    op: &'a Op,
    tensors: &'a [Tensor],
    scalars: &'a [f64],
    bound: &'a Bound,
    values: [u64; MAX_PARAMS],
) -> Checked<'a> {
    Checked { op, tensors, scalars, dims: &bound.dims[..op.dims.len()], values }
}

/// The element type that the written tensors have.
pub(crate) fn output_dtype(op: &Op, tensors: &[Tensor]) -> DType {
    let written = op.tensors.iter().zip(tensors).find(|(def, t)| def.role != Role::In && !t.is_absent());
    written.map_or(tensors[0].dtype, |(_, t)| t.dtype)
}
