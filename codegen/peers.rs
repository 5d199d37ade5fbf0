//! Checks what `op.toml` says of the functions of other libraries that an op answers to: they become Python functions
//! with the same arguments.

use parbake_model::function::{Kind, TARGET, is_identifier};
use parbake_model::op::{Constant, Op, Peer, Role};
use std::collections::BTreeSet;

pub(crate) fn check(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
    let mut names = BTreeSet::new();
    for (i, peer) in op.peers.iter().enumerate() {
        let i = i.to_string();
        if !names.insert(&peer.name) || peer.name.trim().is_empty() {
            wrong(&["peers", &i, "name"], format!("`{}` is listed twice, or is no name", peer.name));
        }
        for (name, value) in &peer.fixed {
            if let Err(why) = check_fixed(op, name, value) {
                wrong(&["peers", &i], why);
            }
        }
        if !peer.arguments.is_empty() {
            check_arguments(op, peer, &i, wrong);
        } else if !peer.returns.is_empty() {
            wrong(&["peers", &i, "returns"], "`returns` names one of the `arguments`, and there are none".into());
        }
    }
    if op.peers.iter().all(|p| p.arguments.is_empty() || p.function() != op.name) {
        check_own(op, wrong);
    }
    if !is_identifier(&op.name) {
        wrong(&["name"], format!("`{}` cannot be a function in Python", op.name));
    }
    for name in op.api.iter().filter(|n| !is_identifier(n)) {
        wrong(&["api"], format!("`{name}` cannot be a function in Python"));
    }
}

/// What a peer fixes is a number of a scalar, the name of a scalar's choice, or an element type of outputs.
fn check_fixed(op: &Op, name: &str, value: &Constant) -> Result<(), String> {
    match (op.kind(name), value) {
        (Some(Kind::Scalar(_)), Constant::Number(n)) if n.is_finite() => Ok(()),
        (Some(Kind::Choice(s, _)), _) if op.number(s, value).is_some_and(|n| n >= s.min && n <= s.max) => Ok(()),
        (Some(Kind::Element(axis)), Constant::Name(n)) if axis.values.iter().any(|v| &v.value == n) => Ok(()),
        (Some(Kind::Scalar(_) | Kind::Choice(..) | Kind::Element(_)), _) => {
            Err(format!("`{name}` is fixed to {value}"))
        }
        _ => Err(format!("there is no scalar `{name}`")),
    }
}

/// The function of the op's own name takes its tensors, its scalars, and what outputs need to be allocated.
fn check_own(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
    let tensors = op.tensors.iter().enumerate().map(|(i, t)| ("tensor", i, &t.name));
    let scalars = op.scalars.iter().enumerate().map(|(i, s)| ("scalar", i, &s.name));
    let mut names = BTreeSet::new();
    for (kind, i, name) in tensors.chain(scalars) {
        names.insert(name);
        if !is_identifier(name) || name == TARGET {
            wrong(&[kind, &i.to_string(), "name"], format!("`{name}` cannot be an argument in Python"));
        }
    }
    let outputs: Vec<_> = op.tensors.iter().filter(|t| t.role == Role::Out).collect();
    for dim in op.open_extents(&outputs) {
        let place = op.dims.iter().position(|d| d.name == dim.name).unwrap_or_default().to_string();
        if !names.insert(&dim.name) || !is_identifier(&dim.name) || dim.name == TARGET {
            wrong(&["dim", &place, "name"], format!("`{}` cannot be an argument in Python", dim.name));
        }
    }
    for axis in op.open_elements(&outputs) {
        let place = op.axes.iter().position(|a| a.name == axis.name).unwrap_or_default().to_string();
        if !names.insert(&axis.name) || !is_identifier(&axis.name) || axis.name == TARGET {
            wrong(&["axis", &place, "name"], format!("`{}` cannot be an argument in Python", axis.name));
        }
    }
}

fn check_arguments(op: &Op, peer: &Peer, i: &str, wrong: &mut dyn FnMut(&[&str], String)) {
    if !is_identifier(peer.function()) {
        wrong(&["peers", i, "name"], format!("`{}` cannot be a function in Python", peer.function()));
    }
    let (mut names, mut meant) = (BTreeSet::new(), BTreeSet::new());
    for (j, argument) in peer.arguments.iter().enumerate() {
        let j = j.to_string();
        let at = ["peers", i, "arguments", &j];
        let name = &argument.name;
        if !is_identifier(name) || name == TARGET {
            wrong(&at, format!("`{name}` cannot be an argument in Python"));
        } else if !names.insert(name) {
            wrong(&at, format!("`{name}` is listed twice"));
        }
        if let Some(why) = &argument.ignored {
            if argument.is.is_some() || why.trim().is_empty() {
                wrong(&at, format!("`{name}` is ignored: then it is nothing of the op, and `ignored` says why"));
            }
            continue;
        }
        let declared = argument.is.as_ref().unwrap_or(name);
        if op.kind(declared).is_none() {
            wrong(&at, format!("there is no tensor or scalar `{declared}`"));
        } else if !meant.insert(declared) {
            wrong(&at, format!("`{declared}` is given twice"));
        } else if peer.fixed.contains_key(declared) {
            wrong(&at, format!("`{declared}` is fixed for this peer"));
        }
    }
    let at = ["peers", i, "arguments"];
    let can_allocate = op.given().next().is_some();
    for tensor in op.tensors.iter().filter(|t| !meant.contains(&t.name) && !t.optional) {
        // An output that is no argument is always allocated.
        if tensor.role != Role::Out || !can_allocate {
            wrong(&at, format!("no argument is the tensor `{}`", tensor.name));
        }
    }
    for scalar in op.scalars.iter().filter(|s| !meant.contains(&s.name) && !peer.fixed.contains_key(&s.name)) {
        if scalar.default.is_none() {
            let name = &scalar.name;
            wrong(&at, format!("the scalar `{name}` is neither an argument nor fixed, and has no default"));
        }
    }
    for returns in &peer.returns {
        let argument = peer.arguments.iter().find(|a| &a.name == returns && a.ignored.is_none());
        let declared = argument.map(|a| a.is.as_ref().unwrap_or(&a.name));
        if !op.tensors.iter().any(|t| Some(&t.name) == declared && t.role == Role::Out) {
            wrong(&["peers", i, "returns"], format!("no argument `{returns}` is an output"));
        } else if !can_allocate {
            let message = format!("`{returns}` cannot be allocated: there is no input that every call has");
            wrong(&["peers", i, "returns"], message);
        }
    }
    let Some(function) = op.functions().into_iter().find(|f| f.peer.is_some_and(|p| p.name == peer.name)) else {
        return;
    };
    for dim in op.open_extents(&function.outputs).iter().filter(|d| !meant.contains(&d.name)) {
        wrong(&at, format!("no argument is `{}`, an extent of outputs that no input says", dim.name));
    }
    let mut optional = None;
    for parameter in &function.parameters {
        let j = peer.arguments.iter().position(|a| a.name == parameter.name).unwrap_or_default().to_string();
        if function.is_optional(parameter) {
            optional = Some(&parameter.name);
        } else if let Some(before) = optional {
            let name = &parameter.name;
            wrong(
                &["peers", i, "arguments", &j],
                format!("`{name}` has no default, and follows `{before}`, which has one"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::definition::tests::{GOOD, complaints};

    const PEER: &str = "fixed = { factor = 1.0 }\n";
    const ARGUMENTS: &str = r#"arguments = [
    { name = "input", is = "x" },
    { name = "factor" },
    { name = "out" },
    { name = "enable_pdl", ignored = "chosen by the launcher" },
]
returns = "out"
"#;

    #[test]
    fn arguments_of_peers_are_checked_with_their_place() {
        let text = GOOD.replace(PEER, ARGUMENTS);
        assert_eq!(complaints("demo/scale/op.toml", &text), "");
        let table: &[(&str, &str, &str)] = &[
            ("is = \"x\"", "is = \"y\"", "10:1: no argument is the tensor `x`\n11:5: there is no tensor or scalar `y`"),
            (
                "\"factor\" },",
                "\"x\" },",
                "10:1: the scalar `factor` is neither an argument nor fixed, and has no default\n12:5: `x` is given twice",
            ),
            (
                "{ name = \"out\" }",
                "{ name = \"input\", is = \"out\" }",
                "13:5: `input` is listed twice\n16:1: no argument `out` is an output",
            ),
            ("\"input\"", "\"in\"", "11:5: `in` cannot be an argument in Python"),
            ("\"input\"", "\"target\"", "11:5: `target` cannot be an argument in Python"),
            ("returns = \"out\"", "returns = \"input\"", "16:1: no argument `input` is an output"),
            ("returns = \"out\"\n", "", ""),
            (
                "chosen by the launcher",
                " ",
                "14:5: `enable_pdl` is ignored: then it is nothing of the op, and `ignored` says why",
            ),
            ("returns", "fixed = { factor = 1.0 }\nreturns", "12:5: `factor` is fixed for this peer"),
            (
                "{ name = \"input\", is = \"x\" },\n    { name = \"factor\" },\n    { name = \"out\" }",
                "{ name = \"factor\" },\n    { name = \"out\" },\n    { name = \"input\", is = \"x\" }",
                "13:5: `input` has no default, and follows `out`, which has one",
            ),
            ("other.scale", "other.class", "9:1: `class` cannot be a function in Python"),
        ];
        for (from, to, expected) in table {
            let altered = text.replacen(from, to, 1);
            assert_ne!(altered, text, "{from}");
            let expected: Vec<_> = expected.lines().map(|l| format!("demo/scale/op.toml:{l}")).collect();
            assert_eq!(complaints("demo/scale/op.toml", &altered), expected.join("\n"), "{from} -> {to}");
        }
        let alone = GOOD.replace(PEER, "returns = \"out\"\n");
        let expected = "demo/scale/op.toml:10:1: `returns` names one of the `arguments`, and there are none";
        assert_eq!(complaints("demo/scale/op.toml", &alone), expected);
        // An output may have another shape, as long as its extents are known.
        let wide = text.replacen("shape = [\"n\"]", "shape = [\"2*n\", \"n/8\"]", 1);
        assert_eq!(complaints("demo/scale/op.toml", &wide), "");
        let dim = "[[dim]]\nname = \"m\"\nsummary = \"more\"\nmin = 1\nmax = 9\n\n[[tensor]]";
        let open = text.replacen("shape = [\"n\"]", "shape = [\"m\"]", 1).replacen("[[tensor]]", dim, 1);
        let open = open.replace("\nn = 16\n", "\nn = 16\nm = 4\n");
        let expected = "demo/scale/op.toml:10:1: no argument is `m`, an extent of outputs that no input says";
        assert_eq!(complaints("demo/scale/op.toml", &open), expected);
        let said = open.replace("{ name = \"factor\" },", "{ name = \"factor\" }, { name = \"size\", is = \"m\" },");
        assert_eq!(complaints("demo/scale/op.toml", &said), "");
        // Without an input that every call has there is nothing to allocate after.
        let absent = text.replacen("summary = \"the input\"", "summary = \"the input\"\noptional = true", 1);
        let expected = "demo/scale/op.toml:16:1: `out` cannot be allocated: there is no input that every call has";
        assert!(complaints("demo/scale/op.toml", &absent).contains(expected));
    }

    #[test]
    fn without_arguments_the_names_of_the_op_must_suit_python() {
        let text = GOOD.replace("name = \"x\"", "name = \"is\"");
        assert_eq!(
            complaints("demo/scale/op.toml", &text),
            "demo/scale/op.toml:45:1: `is` cannot be an argument in Python"
        );
    }
}
