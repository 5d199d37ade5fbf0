//! The trace template of a definition and its examples.

use parbake_model::op::Op;

pub(super) fn check(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
    for name in op.trace.constants.keys().filter(|n| op.dim(n).is_none()) {
        wrong(&["trace", "constants", name], format!("there is no `[[dim]]` named `{name}`"));
    }
    for name in op.trace.given.iter().filter(|n| !op.tensors.iter().any(|t| t.optional && &t.name == *n)) {
        wrong(&["trace", "given"], format!("there is no optional tensor `{name}`"));
    }
    if op.trace.examples.is_empty() {
        wrong(&["trace"], "at least one `[[trace.example]]` with realistic shapes".into());
    }
    for (i, example) in op.trace.examples.iter().enumerate() {
        let i = i.to_string();
        for dim in &op.dims {
            match example.get(&dim.name) {
                None => wrong(&["trace", "example", &i], format!("the example gives no `{}`", dim.name)),
                Some(v) if *v < dim.min || *v > dim.max => {
                    wrong(&["trace", "example", &i, &dim.name], format!("`{}` is out of its range", dim.name));
                }
                Some(_) => {}
            }
        }
        for name in example.keys().filter(|n| op.dim(n).is_none()) {
            wrong(&["trace", "example", &i, name], format!("there is no `[[dim]]` named `{name}`"));
        }
    }
}
