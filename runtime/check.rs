//! Checks arguments against the op's signature, before any kernel is looked for. All violations are collected.

use crate::binding::Checked;
use crate::tensor::Tensor;
use parbake_model::dtype::DType;
use parbake_model::op::{Op, Role};
use parbake_model::report::{Class, Report};

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
pub(crate) struct Signature(Vec<Declared>);

#[derive(Debug)]
struct Declared {
    /// The axis that gives the element type, and each type's place among its values.
    axis: Option<(usize, [Option<usize>; DType::ALL.len()])>,
    /// The shape symbols.
    dims: Vec<usize>,
}

impl Signature {
    /// Of a definition that was checked.
    pub(crate) fn of(op: &Op) -> Self {
        let dim =
            |symbol: &String| op.dims.iter().position(|d| &d.name == symbol).expect("bug: checked with the definition");
        let axis = |name: &String| {
            let a = op.axes.iter().position(|x| &x.name == name).expect("bug: checked with the definition");
            let place = |t: DType| op.axes[a].values.iter().position(|v| v.value == t.name());
            (a, DType::ALL.map(place))
        };
        let declared = |t: &parbake_model::op::Tensor| Declared {
            axis: t.axis.as_ref().map(axis),
            dims: t.shape.iter().map(dim).collect(),
        };
        Self(op.tensors.iter().map(declared).collect())
    }
}

/// Checks tensors and scalars given in the op's order.
pub(crate) fn check(
    op: &Op,
    signature: &Signature,
    tensors: &[Tensor],
    scalars: &[f64],
) -> Result<Bound, BadArguments> {
    let mut bad = Vec::new();
    let mut wrong = |argument: &str, what, expected: String, got: String| {
        bad.push(Violation { argument: argument.to_owned(), what, expected, got });
    };
    if tensors.len() != op.tensors.len() || scalars.len() != op.scalars.len() {
        let expected = format!("{} tensors and {} scalars", op.tensors.len(), op.scalars.len());
        wrong("call", "count", expected, format!("{} and {}", tensors.len(), scalars.len()));
        return Err(BadArguments { op: op.name.clone(), violations: bad });
    }
    let mut dims = [None; MAX_SYMBOLS];
    let mut axes: [Option<usize>; MAX_SYMBOLS] = [None; MAX_SYMBOLS];
    for ((def, declared), tensor) in op.tensors.iter().zip(&signature.0).zip(tensors) {
        let name = &def.name;
        match (&declared.axis, def.dtype) {
            (Some((a, places)), _) => {
                let (a, values) = (*a, &op.axes[*a].values);
                match (places[tensor.dtype as usize], axes[a]) {
                    (None, _) => {
                        let names: Vec<_> = values.iter().map(|v| v.value.as_str()).collect();
                        wrong(name, "dtype", names.join(" or "), tensor.dtype.to_string());
                    }
                    (Some(i), Some(j)) if i != j => {
                        wrong(
                            name,
                            "dtype",
                            format!("{}, as of the tensors before it", values[j].value),
                            tensor.dtype.to_string(),
                        );
                    }
                    (found, _) => axes[a] = found,
                }
            }
            (None, Some(dtype)) if dtype != tensor.dtype => {
                wrong(name, "dtype", dtype.to_string(), tensor.dtype.to_string())
            }
            _ => {}
        }
        if tensor.shape().len() != def.shape.len() {
            let expected = format!("{} dimensions [{}]", def.shape.len(), def.shape.join(", "));
            wrong(name, "rank", expected, format!("{:?}", tensor.shape()));
            continue;
        }
        for ((symbol, &i), &extent) in def.shape.iter().zip(&declared.dims).zip(tensor.shape()) {
            let dim = &op.dims[i];
            match dims[i] {
                _ if extent < dim.min || extent > dim.max => {
                    wrong(name, "shape", format!("{symbol} from {} to {}", dim.min, dim.max), extent.to_string());
                }
                Some(known) if known != extent => {
                    wrong(
                        name,
                        "shape",
                        format!("{symbol} = {known}, as of the tensors before it"),
                        extent.to_string(),
                    );
                }
                _ => dims[i] = Some(extent),
            }
        }
        check_memory(def.dense, def.role, name, tensor, &mut wrong);
    }
    for (def, &value) in op.scalars.iter().zip(scalars) {
        if !(value >= def.min && value <= def.max) {
            wrong(&def.name, "value", format!("{} to {}", def.min, def.max), value.to_string());
        }
    }
    if bad.is_empty() {
        check_aliasing(op, tensors, &mut bad);
    }
    if bad.is_empty() {
        Ok(Bound { dims: dims.map(|d| d.unwrap_or(0)), axes: axes.map(|a| a.unwrap_or(0)) })
    } else {
        Err(BadArguments { op: op.name.clone(), violations: bad })
    }
}

fn check_memory(
    dense: usize,
    role: Role,
    name: &str,
    tensor: &Tensor,
    wrong: &mut impl FnMut(&str, &'static str, String, String),
) {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    // Strides of dimensions of one element, or of empty tensors, mean nothing.
    let counts = |i: usize| shape[i] > 1 && !tensor.is_empty();
    let mut step = 1;
    for i in (0..shape.len()).rev() {
        let is_dense = i + dense >= shape.len();
        if counts(i) && is_dense && strides[i] != step {
            wrong(name, "stride", format!("{step} in dimension {i}: it must be dense"), strides[i].to_string());
        } else if counts(i) && !is_dense && role == Role::In && strides[i] < 0 {
            wrong(name, "stride", format!("0 or more in dimension {i}"), strides[i].to_string());
        } else if counts(i) && !is_dense && role != Role::In && strides[i] < step {
            wrong(
                name,
                "stride",
                format!("at least {step} in dimension {i}: elements that are written must not overlap"),
                strides[i].to_string(),
            );
        }
        step = step.saturating_mul(shape[i].max(1));
    }
    if tensor.is_empty() {
        return;
    }
    if tensor.data.is_null() {
        wrong(name, "pointer", "memory".into(), "null".into());
    } else if !(tensor.data as usize).is_multiple_of(tensor.dtype.bytes()) {
        wrong(name, "pointer", format!("aligned to {} bytes", tensor.dtype.bytes()), format!("{:p}", tensor.data));
    }
}

fn check_aliasing(op: &Op, tensors: &[Tensor], bad: &mut Vec<Violation>) {
    for (i, (def, a)) in op.tensors.iter().zip(tensors).enumerate() {
        if def.role == Role::In || a.is_empty() {
            continue;
        }
        let start_a = a.data as i128;
        let end_a = start_a + a.extent();
        for (j, (other, b)) in op.tensors.iter().zip(tensors).enumerate() {
            // Two written tensors are looked at once.
            if i == j || other.role != Role::In && j < i || b.is_empty() {
                continue;
            }
            let start_b = b.data as i128;
            if end_a <= start_b || start_b + b.extent() <= start_a {
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
pub(crate) fn checked<'a>(op: &'a Op, tensors: &'a [Tensor], scalars: &'a [f64], bound: &'a Bound) -> Checked<'a> {
    Checked { op, tensors, scalars, dims: &bound.dims[..op.dims.len()] }
}

/// The element type that the written tensors have.
pub(crate) fn output_dtype(op: &Op, tensors: &[Tensor]) -> DType {
    let i = op.tensors.iter().position(|t| t.role != Role::In).unwrap_or(0);
    tensors[i].dtype
}
