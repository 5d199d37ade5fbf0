//! The signature of an op in words: what the comments of generated functions say, in whatever language.

use parbake_model::op::{Op, Role, Scalar, ScalarType, Tensor, Value};

/// A summary, ended.
pub(crate) fn sentence(summary: &str) -> String {
    format!("{}.", summary.trim_end_matches('.'))
}

/// Defaults of scalars, as C and Rust write them: `RMSNORM_EPS_DEFAULT` → `1e-6`.
pub(crate) fn defaults(op: &Op) -> Vec<(String, String)> {
    op.scalars.iter().filter_map(|s| Some((default_name(op, s), number(s.kind, s.default?)))).collect()
}

/// A number of a type.
fn number(kind: ScalarType, value: f64) -> String {
    match kind {
        ScalarType::F32 => format!("{value:?}"),
        ScalarType::I32 | ScalarType::I64 => format!("{value}"),
        ScalarType::Bool => format!("{}", value != 0.0),
    }
}

fn default_name(op: &Op, scalar: &Scalar) -> String {
    format!("{}_{}_DEFAULT", op.name, scalar.name).to_uppercase()
}

/// Each argument, and what there is to know about it. Names of defaults begin with `prefix`.
pub(crate) fn arguments(op: &Op, prefix: &str) -> Vec<(String, String)> {
    let tensors = op.tensors.iter().map(|t| (t.name.clone(), tensor(op, t)));
    tensors.chain(op.scalars.iter().map(|s| (s.name.clone(), scalar(op, s, prefix)))).collect()
}

fn tensor(op: &Op, tensor: &Tensor) -> String {
    let role = match tensor.role {
        Role::In => "read",
        Role::Out => "written",
        Role::InOut => "read and written",
    };
    let axis = tensor.axis.as_ref().and_then(|name| op.axes.iter().find(|a| &a.name == name));
    let dtype = match axis {
        Some(axis) => {
            let values: Vec<&str> = axis.values.iter().map(|v| v.value.as_str()).collect();
            let others = op.tensors.iter().filter(|t| t.axis == tensor.axis).count() > 1;
            values.join(" or ") + if others { ", the same for all such tensors" } else { "" }
        }
        None => tensor.dtype.map(|d| d.to_string()).unwrap_or_default(),
    };
    let last = if tensor.dense == 1 { "dimension".to_owned() } else { format!("{} dimensions", tensor.dense) };
    let strides = match tensor.role {
        _ if tensor.dense >= tensor.shape.len() => "dense".to_owned(),
        Role::In => format!("the last {last} dense, other strides are free, 0 or more"),
        _ => format!("the last {last} dense, other strides are free as long as nothing overlaps"),
    };
    let alias = match tensor.role {
        Role::In => String::new(),
        _ if tensor.may_be.is_empty() => "; overlaps no other tensor".to_owned(),
        _ => format!("; may be the very same memory as {}, and overlaps nothing else", tensor.may_be.join(" or ")),
    };
    let optional = if tensor.optional { "; may be absent" } else { "" };
    format!(
        "[{}], {role}{optional}: {}. Element type {dtype}; {strides}{alias}.",
        tensor.shape.join(", "),
        tensor.summary
    )
}

fn scalar(op: &Op, scalar: &Scalar, prefix: &str) -> String {
    let default = scalar.default.map(|_| format!("; {prefix}{}", default_name(op, scalar))).unwrap_or_default();
    match scalar.kind {
        ScalarType::Bool => format!("{}{default}.", scalar.summary),
        kind if kind.is_whole() => format!("{}; from {} to {}{default}.", scalar.summary, scalar.min, scalar.max),
        _ => format!("{}; from {} to {}, not NaN{default}.", scalar.summary, scalar.min, scalar.max),
    }
}

/// Ranges of extents, where the op runs, and what does not exist.
pub(crate) fn notes(op: &Op) -> Vec<String> {
    let mut notes = Vec::new();
    for d in &op.dims {
        let folds = if d.folds { "; where it stands first, several leading dimensions may stand for it" } else { "" };
        notes.push(format!("{}: {}, from {} to {}{folds}.", d.name, d.summary, d.min, d.max));
    }
    let host = if op.host { ", and on the host target" } else { "" };
    notes.push(format!("Runs on GPUs from {} on{host}.", op.since));
    // What depends on a tactic is the library's own business.
    let is_axis = |name: &String| op.axes.iter().any(|a| &a.name == name);
    for e in op.excludes.iter().filter(|e| e.when.keys().all(is_axis)) {
        let list = |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        let when: Vec<String> = e.when.iter().map(|(n, v)| format!(" {n} {}", list(v))).collect();
        let with = if when.is_empty() { String::new() } else { format!(" with{}", when.join(",")) };
        let place = e.place().map(|place| format!(" {place}")).unwrap_or_default();
        notes.push(format!("Does not exist{with}{place}: {}.", e.reason));
    }
    notes
}
