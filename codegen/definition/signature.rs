//! The signature of a definition: shape symbols, tensors, scalars, tolerances.

use super::is_name;
use parbake_model::extent::Extent;
use parbake_model::op::{Op, Role};
use std::collections::BTreeSet;

/// The most dimensions of a tensor.
const MAX_RANK: usize = 8;

pub(super) fn check(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
    if op.dims.len() > 16 {
        wrong(&["dim"], format!("{} of `[[dim]]`; launchers keep room for 16", op.dims.len()));
    }
    let mut names = BTreeSet::new();
    for (i, dim) in op.dims.iter().enumerate() {
        let i = i.to_string();
        if !names.insert(&dim.name) || !is_name(&dim.name) {
            wrong(&["dim", &i, "name"], format!("`{}` is declared twice, or is no name", dim.name));
        }
        if dim.min < 0 || dim.max < dim.min {
            wrong(&["dim", &i, "min"], format!("`{}` ranges from {} to {}", dim.name, dim.min, dim.max));
        }
    }
    let mut names = BTreeSet::new();
    let mut inputs_began = false;
    for (i, tensor) in op.tensors.iter().enumerate() {
        let i = i.to_string();
        if !names.insert(&tensor.name) || !is_name(&tensor.name) {
            wrong(&["tensor", &i, "name"], format!("`{}` is declared twice, or is no name", tensor.name));
        }
        inputs_began |= tensor.role == Role::In;
        if inputs_began && tensor.role == Role::Out {
            wrong(&["tensor", &i, "role"], "outputs come before inputs".into());
        }
        match (&tensor.axis, tensor.dtype) {
            (Some(axis), None) => match op.axes.iter().find(|a| &a.name == axis) {
                None => wrong(&["tensor", &i, "axis"], format!("there is no axis `{axis}`")),
                Some(a) if a.dim.is_some() || a.scalar.is_some() => {
                    wrong(&["tensor", &i, "axis"], format!("axis `{axis}` does not come from element types"));
                }
                Some(a) => {
                    for v in a.values.iter().filter(|v| parbake_model::dtype::DType::named(&v.value).is_none()) {
                        wrong(
                            &["tensor", &i, "axis"],
                            format!("value `{}` of axis `{axis}` is no element type", v.value),
                        );
                    }
                }
            },
            (None, Some(_)) => {}
            _ => wrong(&["tensor", &i, "name"], "a tensor has either `axis` or `dtype`".into()),
        }
        for extent in &tensor.shape {
            match Extent::parse(extent) {
                Err(why) => wrong(&["tensor", &i, "shape"], why),
                Ok(extent) => {
                    for symbol in extent.symbols().into_iter().filter(|s| op.dim(s).is_none()) {
                        wrong(&["tensor", &i, "shape"], format!("there is no `[[dim]]` named `{symbol}`"));
                    }
                }
            }
        }
        if tensor.shape.len() > MAX_RANK {
            wrong(
                &["tensor", &i, "shape"],
                format!("{} dimensions; tensors have at most {MAX_RANK}", tensor.shape.len()),
            );
        }
        if tensor.dense > tensor.shape.len() {
            wrong(&["tensor", &i, "dense"], format!("{} dense dimensions of {}", tensor.dense, tensor.shape.len()));
        }
        for (at, other) in tensor.may_be.iter().enumerate() {
            if *other == tensor.name || tensor.may_be[..at].contains(other) {
                wrong(&["tensor", &i, "may_be"], format!("`{other}` is the tensor itself, or is listed twice"));
            }
        }
        for other in tensor.may_be.iter().filter(|o| op.tensors.iter().all(|t| &t.name != *o)) {
            wrong(&["tensor", &i, "may_be"], format!("there is no tensor `{other}`"));
        }
    }
    for (i, scalar) in op.scalars.iter().enumerate() {
        let i = i.to_string();
        if !names.insert(&scalar.name) || !is_name(&scalar.name) {
            wrong(&["scalar", &i, "name"], format!("`{}` is declared twice, or is no name", scalar.name));
        }
        // TOML has `nan` and `inf`, the generated manifest has not; and nothing lies between bounds that are NaN.
        let inside = |v: f64| v >= scalar.min && v <= scalar.max;
        let (least, most) = scalar.kind.range();
        let typed = |v: f64| v >= least && v <= most && (!scalar.kind.is_whole() || v.fract() == 0.0);
        let bounds = [Some(scalar.min), Some(scalar.max), scalar.default];
        if !bounds.into_iter().flatten().all(typed) {
            wrong(&["scalar", &i, "min"], format!("`{}`: bounds or default are no {}", scalar.name, scalar.kind));
        } else if scalar.min > scalar.max || scalar.default.is_some_and(|d| !inside(d)) {
            wrong(&["scalar", &i, "min"], format!("`{}` ranges from {} to {}", scalar.name, scalar.min, scalar.max));
        }
    }
    for (dtype, tolerance) in &op.tolerance {
        if !tolerance.is_finite() {
            wrong(&["tolerance", dtype.name()], format!("the tolerance of `{dtype}` must be finite and not negative"));
        }
    }
    let mut written = BTreeSet::new();
    for tensor in op.tensors.iter().filter(|t| t.role != Role::In) {
        let axis = op.axes.iter().filter(|a| Some(&a.name) == tensor.axis.as_ref());
        written.extend(axis.flat_map(|a| &a.values).filter_map(|v| parbake_model::dtype::DType::named(&v.value)));
        written.extend(tensor.dtype);
    }
    for dtype in written.into_iter().filter(|d| !op.tolerance.contains_key(d)) {
        wrong(&["tolerance"], format!("no tolerance for output type `{dtype}`"));
    }
}
