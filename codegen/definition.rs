//! Reads `op.toml`. Every complaint points at a line and column; all of them are collected, not the first only.

use crate::{names, peers};
use parbake_model::extent::Extent;
use parbake_model::op::{Op, Role, Value};
use parbake_model::space;
use parbake_model::target::{Suffix, Target};
use std::collections::BTreeSet;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// The longest URI: it is part of file names, which end at 255 bytes.
const MAX_URI: usize = 160;

/// The most dimensions of a tensor.
const MAX_RANK: usize = 8;

/// A place in an `op.toml` and what is wrong there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

/// An `op.toml` that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadDefinition {
    /// The file, relative to the kernel tree.
    pub file: String,
    /// What is wrong, sorted by place.
    pub complaints: Vec<Complaint>,
}

impl BadDefinition {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "PB-1101"
    }
}

impl fmt::Display for BadDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.complaints.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:{}:{}: {}", self.file, c.line, c.column, c.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for BadDefinition {}

/// Parses and checks one `op.toml`. `file` is its path below the kernel tree: `norm/rmsnorm/op.toml`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(file: &str, text: &str) -> Result<Op, BadDefinition> {
    let place = |offset: usize| {
        let before = &text[..offset.min(text.len())];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    };
    let refuse = |mut found: Vec<(usize, String)>| {
        found.sort();
        let complaints = found.into_iter().map(|(offset, message)| {
            let (line, column) = place(offset);
            Complaint { line, column, message }
        });
        Err(BadDefinition { file: file.to_owned(), complaints: complaints.collect() })
    };
    let op: Op = match toml::from_str(text) {
        Ok(op) => op,
        Err(e) => return refuse(vec![(e.span().map_or(0, |s| s.start), e.message().to_owned())]),
    };
    let tree = DeTable::parse(text).expect("bug: text was parsed a moment ago");
    let mut found = Vec::new();
    check(&op, file, &mut |path, message| found.push((locate(tree.get_ref(), path).unwrap_or(0), message)));
    if found.is_empty() { Ok(op) } else { refuse(found) }
}

/// Where a value is written, by path: `["axis", "1", "values"]`.
fn locate(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first)?;
    if rest.is_empty() {
        return Some(key.span().start);
    }
    let mut at = value.span().start;
    let mut value = value.get_ref();
    for part in rest {
        match value {
            DeValue::Array(items) => {
                let item = items.get(part.parse::<usize>().ok()?)?;
                at = item.span().start;
                value = item.get_ref();
            }
            DeValue::Table(table) => {
                let (key, inner) = table.iter().find(|(key, _)| key.get_ref() == part)?;
                at = key.span().start;
                value = inner.get_ref();
            }
            _ => break,
        }
    }
    Some(at)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// What may stand before a value in a URI, which becomes a file's and a symbol's name.
fn is_prefix(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// The length of the longest URI of an op.
fn longest_uri(op: &Op) -> usize {
    let axes = op.axes.iter().map(|a| (&a.prefix, a.values.iter().map(|v| v.value.len()).max()));
    let tactics = op.tactics.iter().map(|t| (&t.prefix, t.values.iter().map(|v| v.to_string().len()).max()));
    let parts = axes.chain(tactics).map(|(prefix, longest)| 1 + prefix.len() + longest.unwrap_or(0));
    op.name.len() + parts.sum::<usize>() + 1 + 12
}

fn check(op: &Op, file: &str, wrong: &mut dyn FnMut(&[&str], String)) {
    let (folder_family, folder_name) =
        file.strip_suffix("/op.toml").and_then(|f| f.rsplit_once('/')).unwrap_or(("", ""));
    if op.name != folder_name || !is_name(&op.name) {
        wrong(&["name"], format!("`name` is `{}`, but the folder is `{folder_name}`", op.name));
    }
    if op.family != folder_family || !is_name(&op.family) {
        wrong(&["family"], format!("`family` is `{}`, but the folder above is `{folder_family}`", op.family));
    }
    if op.host
        && let Err(why) = op.language.supports(Target::Host)
    {
        wrong(&["host"], why);
    }
    if !is_name(&op.params) {
        wrong(&["params"], format!("`{}` is not the name of a struct: lower-case letters, digits and `_`", op.params));
    }
    if longest_uri(op) > MAX_URI {
        wrong(&["name"], format!("URIs of {} characters; at most {MAX_URI}", longest_uri(op)));
    }
    if op.summary.trim().is_empty() {
        wrong(&["summary"], "`summary` is empty".into());
    }
    if !matches!(op.since, Target::Sm(_, Suffix::Baseline)) {
        wrong(&["since"], format!("`since` names the oldest architecture without a suffix, got `{}`", op.since));
    }
    check_space(op, wrong);
    check_signature(op, wrong);
    names::check(op, wrong);
    peers::check(op, wrong);
    check_trace(op, wrong);
}

fn check_space(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
    let mut names = BTreeSet::new();
    let mut unique = |kind: &str, i: &str, name: &str, wrong: &mut dyn FnMut(&[&str], String)| {
        if !is_name(name) {
            wrong(&[kind, i, "name"], format!("`{name}` is not a name: lower-case letters, digits and `_`"));
        } else if !names.insert(name.to_owned()) {
            wrong(&[kind, i, "name"], format!("`{name}` is declared twice"));
        }
    };
    for (i, axis) in op.axes.iter().enumerate() {
        let i = i.to_string();
        unique("axis", &i, &axis.name, wrong);
        if !is_prefix(&axis.prefix) {
            wrong(
                &["axis", &i, "prefix"],
                format!("`{}` cannot be part of a URI: letters, digits and `_`", axis.prefix),
            );
        }
        let distinct: BTreeSet<_> = axis.values.iter().map(|v| &v.value).collect();
        if axis.values.is_empty() || distinct.len() != axis.values.len() {
            wrong(&["axis", &i, "values"], format!("axis `{}` needs at least one value, each once", axis.name));
        }
        let chosen = axis.scalar.as_ref().and_then(|n| op.scalars.iter().find(|s| &s.name == n));
        if axis.dim.as_ref().is_some_and(|n| op.dim(n).is_none()) {
            wrong(&["axis", &i, "dim"], "there is no `[[dim]]` of that name".into());
        }
        if axis.scalar.is_some() && chosen.is_none() {
            wrong(&["axis", &i, "scalar"], "there is no `[[scalar]]` of that name".into());
        }
        if axis.dim.is_some() && axis.scalar.is_some() {
            wrong(&["axis", &i, "dim"], "an axis comes from one of `dim` and `scalar`, or from element types".into());
        }
        if axis.dim.is_some() && axis.values.iter().any(|v| v.value.parse::<i64>().is_err()) {
            wrong(&["axis", &i, "values"], "values of an axis that is an extent are numbers".into());
        }
        if chosen.is_some_and(|s| !s.kind.is_whole() || s.min != 0.0 || s.max + 1.0 != axis.values.len() as f64) {
            let most = axis.values.len().saturating_sub(1);
            wrong(&["axis", &i, "scalar"], format!("the scalar must be whole, from 0 to {most}"));
        }
        for value in &axis.values {
            if !value.value.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') || value.value.is_empty() {
                wrong(
                    &["axis", &i, "values"],
                    format!("`{}` cannot be part of a URI: letters, digits and `_`", value.value),
                );
            }
        }
    }
    for (i, tactic) in op.tactics.iter().enumerate() {
        let i = i.to_string();
        unique("tactic", &i, &tactic.name, wrong);
        if !is_prefix(&tactic.prefix) {
            wrong(
                &["tactic", &i, "prefix"],
                format!("`{}` cannot be part of a URI: letters, digits and `_`", tactic.prefix),
            );
        }
        let distinct: BTreeSet<_> = tactic.values.iter().collect();
        if tactic.values.is_empty() || distinct.len() != tactic.values.len() {
            wrong(&["tactic", &i, "values"], format!("tactic `{}` needs at least one value, each once", tactic.name));
        }
    }
    for (i, exclude) in op.excludes.iter().enumerate() {
        let i = i.to_string();
        if exclude.reason.trim().is_empty() {
            wrong(&["exclude", &i, "reason"], "every exclusion says why".into());
        }
        if exclude.when.is_empty() && exclude.below.is_none() {
            wrong(&["exclude", &i], "an exclusion without `when` and `below` excludes everything".into());
        }
        for (name, values) in &exclude.when {
            if values.is_empty() || values.iter().enumerate().any(|(at, v)| values[..at].contains(v)) {
                wrong(&["exclude", &i, "when", name], format!("`{name}` needs at least one value, each once"));
            }
            let axis = op.axes.iter().find(|a| &a.name == name);
            let tactic = op.tactics.iter().find(|t| &t.name == name);
            if axis.is_none() && tactic.is_none() {
                wrong(&["exclude", &i, "when", name], format!("there is no axis or tactic `{name}`"));
                continue;
            }
            for value in values {
                let known = match value {
                    Value::Text(t) => axis.is_some_and(|a| a.values.iter().any(|v| &v.value == t)),
                    Value::Number(n) => tactic.is_some_and(|t| t.values.contains(n)),
                };
                if !known {
                    wrong(&["exclude", &i, "when", name], format!("`{name}` has no value `{value}`"));
                }
            }
        }
    }
    let size = space::size(op);
    if size > space::MAX_COMBINATIONS {
        let number = if size == usize::MAX { "too many".to_owned() } else { size.to_string() };
        let kind = if op.axes.is_empty() { "tactic" } else { "axis" };
        wrong(&[kind], format!("{number} combinations of axes and tactics; at most {}", space::MAX_COMBINATIONS));
    }
    for (kind, count, most) in [("axis", op.axes.len(), 16), ("tactic", op.tactics.len(), 4)] {
        if count > most {
            wrong(&[kind], format!("{count} of `[[{kind}]]`; launchers keep room for {most}"));
        }
    }
    if !op.tactics.is_empty() && op.default_tactics.is_empty() {
        wrong(&["tactic"], "an op with tactics declares a `[[default_tactic]]`".into());
    }
    for (i, default) in op.default_tactics.iter().enumerate() {
        let i = i.to_string();
        for tactic in &op.tactics {
            match default.tactic.get(&tactic.name) {
                Some(v) if tactic.values.contains(v) => {}
                Some(v) => {
                    wrong(&["default_tactic", &i, "tactic"], format!("tactic `{}` has no value `{v}`", tactic.name))
                }
                None => wrong(&["default_tactic", &i, "tactic"], format!("no value for tactic `{}`", tactic.name)),
            }
        }
        for name in default.tactic.keys().filter(|n| op.tactics.iter().all(|t| &t.name != *n)) {
            wrong(&["default_tactic", &i, "tactic", name], format!("there is no tactic `{name}`"));
        }
    }
}

fn check_signature(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
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

fn check_trace(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fmt::Write as _;

    pub(crate) const GOOD: &str = r#"name = "scale"
family = "demo"
summary = "out = x * factor"
params = "pb_scale_params"
since = "sm_75"
host = true

[[peers]]
name = "other.scale"
fixed = { factor = 1.0 }

[[axis]]
name = "dtype"
summary = "element type"
values = [{ value = "f16", cpp = "pb::f16" }, { value = "f32", cpp = "float" }]

[[tactic]]
name = "block"
summary = "threads"
values = [128, 256]

[[exclude]]
when = { dtype = ["f16"], block = [256] }
reason = "too slow"

[[default_tactic]]
since = "sm_75"
tactic = { block = 128 }

[[dim]]
name = "n"
summary = "elements"
min = 1
max = 100

[[tensor]]
name = "out"
summary = "the result"
role = "out"
axis = "dtype"
shape = ["n"]
dense = 1

[[tensor]]
name = "x"
summary = "the input"
role = "in"
axis = "dtype"
shape = ["n"]
dense = 1

[[scalar]]
name = "factor"
summary = "the factor"
min = 0.0
max = 2.0

[tolerance]
f16 = { ulp = 1.0 }
f32 = { abs = 1e-6, rel = 1e-5 }

[trace]
op_type = "scale"
name_prefix = "scale"
constants = { n = "n" }

[[trace.example]]
n = 16
"#;

    pub(crate) fn complaints(file: &str, text: &str) -> String {
        parse(file, text).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
    }

    /// What is said after a piece of the good text was replaced.
    fn altered(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        complaints("demo/scale/op.toml", &GOOD.replacen(from, to, 1))
    }

    #[test]
    fn malformed_definitions_are_refused_with_their_place() {
        assert_eq!(complaints("demo/scale/op.toml", GOOD), "");
        let table: &[(&str, &str, &str)] = &[
            ("host = true", "host = true\nlanguage = \"triton\"", "6:1: Triton compiles for GPUs, not for host"),
            ("host = true", "host = 1", "6:8: invalid type: integer `1`, expected a boolean"),
            ("name = \"scale\"", "name = \"Scale\"", "1:1: `name` is `Scale`, but the folder is `scale`"),
            ("family = \"demo\"", "family = \"norm\"", "2:1: `family` is `norm`, but the folder above is `demo`"),
            ("summary = \"out = x * factor\"", "summary = \" \"", "3:1: `summary` is empty"),
            (
                "since = \"sm_75\"",
                "since = \"sm_90a\"",
                "5:1: `since` names the oldest architecture without a suffix, got `sm_90a`",
            ),
            ("{ factor = 1.0 }", "{ facto = 1.0 }", "8:1: there is no scalar `facto`"),
            (
                "params = \"pb_scale_params\"",
                "params = \"a b\"",
                "4:1: `a b` is not the name of a struct: lower-case letters, digits and `_`",
            ),
            (
                "values = [128, 256]",
                "prefix = \"../b\"\nvalues = [128, 256]",
                "20:1: `../b` cannot be part of a URI: letters, digits and `_`",
            ),
            (
                "name = \"block\"",
                "name = \"dtype\"",
                "18:1: `dtype` is declared twice\n23:27: there is no axis or tactic `block`\n28:1: no value for tactic `dtype`\n28:12: there is no tactic `block`",
            ),
            (
                "\"float\" }]",
                "\"float\" }, { value = \"f16\", cpp = \"x\" }]",
                "15:1: axis `dtype` needs at least one value, each once",
            ),
            (
                "values = [128, 256]",
                "values = [128, 256, 128]",
                "20:1: tactic `block` needs at least one value, each once",
            ),
            ("{ dtype = [\"f16\"], block", "{ dtypo = [\"f16\"], block", "23:10: there is no axis or tactic `dtypo`"),
            ("{ dtype = [\"f16\"], block", "{ dtype = [\"f8\"], block", "23:10: `dtype` has no value `f8`"),
            ("block = [256]", "block = [512]", "23:27: `block` has no value `512`"),
            ("block = [256]", "block = []", "23:27: `block` needs at least one value, each once"),
            ("block = [256]", "block = [256, 256]", "23:27: `block` needs at least one value, each once"),
            ("{ block = 128 }", "{ block = 128, x = 1 }", "28:25: there is no tactic `x`"),
            (
                "dense = 1\n",
                "dense = 1\nmay_be = [\"y\", \"out\"]\n",
                "43:1: `out` is the tensor itself, or is listed twice\n43:1: there is no tensor `y`",
            ),
            (
                "[[axis]]",
                "[[peers]]\nname = \"other.scale\"\n\n[[axis]]",
                "13:1: `other.scale` is listed twice, or is no name",
            ),
            ("reason = \"too slow\"", "reason = \"\"", "24:1: every exclusion says why"),
            ("{ block = 128 }", "{ block = 64 }", "28:1: tactic `block` has no value `64`"),
            ("min = 1\n", "min = 101\n", "33:1: `n` ranges from 101 to 100\n68:1: `n` is out of its range"),
            ("shape = [\"n\"]", "shape = [\"m\"]", "41:1: there is no `[[dim]]` named `m`"),
            ("dense = 1", "dense = 2", "42:1: 2 dense dimensions of 1"),
            (
                "shape = [\"n\"]",
                "shape = [\"n\", \"n\", \"n\", \"n\", \"n\", \"n\", \"n\", \"n\", \"n\"]",
                "41:1: 9 dimensions; tensors have at most 8",
            ),
            (
                "name = \"factor\"",
                "name = \"x\"",
                "8:1: there is no scalar `factor`\n53:1: `x` is declared twice, or is no name",
            ),
            ("f16 = { ulp = 1.0 }\n", "", "58:2: no tolerance for output type `f16`"),
            ("max = 2.0", "max = inf", "55:1: `factor`: bounds or default are no f32"),
            (
                "max = 2.0",
                "max = 2.0\ntype = \"f64\"",
                "57:8: unknown variant `f64`, expected one of `f32`, `i32`, `i64`, `bool`",
            ),
            ("max = 2.0", "max = 2.5\ntype = \"i32\"", "55:1: `factor`: bounds or default are no i32"),
            ("shape = [\"n\"]", "shape = [\"2*n+\"]", "41:1: `2*n+` is no extent: the end is not expected"),
            (
                "cpp = \"float\" }]",
                "cpp = \"float\" }]\ndim = \"m\"",
                "15:1: values of an axis that is an extent are numbers\n16:1: there is no `[[dim]]` of that name\n\
                 41:1: axis `dtype` does not come from element types\n49:1: axis `dtype` does not come from element types",
            ),
            (
                "f16 = { ulp = 1.0 }",
                "f16 = { ulp = nan }",
                "59:1: the tolerance of `f16` must be finite and not negative",
            ),
            ("{ factor = 1.0 }", "{ factor = nan }", "8:1: `factor` is fixed to NaN"),
            ("constants = { n = \"n\" }", "constants = { m = \"n\" }", "65:15: there is no `[[dim]]` named `m`"),
            ("n = 16\n", "n = 101\n", "68:1: `n` is out of its range"),
            ("n = 16\n", "", "67:1: the example gives no `n`"),
        ];
        let long = complaints("demo/scale/op.toml", &GOOD.replace("\"f16\"", &format!("\"{}\"", "f".repeat(150))));
        assert!(long.contains("1:1: URIs of 173 characters; at most 160"), "{long}");
        let mut findings = String::new();
        for (from, to, expected) in table {
            let got = altered(from, to);
            let expected: Vec<_> = expected.lines().map(|line| format!("demo/scale/op.toml:{line}")).collect();
            if got != expected.join("\n") {
                let _ = writeln!(findings, "{from} -> {to}\n  expected {}\n  got      {got}", expected.join("\n"));
            }
        }
        assert!(findings.is_empty(), "\n{findings}");
    }

    #[test]
    fn fields_are_known_present_and_well_formed() {
        let starts = |text: String, start: &str| assert!(text.starts_with(start), "{text}");
        starts(altered("host = true", "hots = true"), "demo/scale/op.toml:6:1: unknown field `hots`, expected one of");
        starts(altered("host = true\n", ""), "demo/scale/op.toml:1:1: missing field `host`");
        starts(altered("host = true", "host = "), "demo/scale/op.toml:6:");
        let text = altered("[tolerance]\nf16 = { ulp = 1.0 }\nf32 = { abs = 1e-6, rel = 1e-5 }\n", "");
        starts(text, "demo/scale/op.toml:1:1: missing field `tolerance`");
    }

    #[test]
    fn outputs_come_before_inputs() {
        let swapped = GOOD.replace("role = \"out\"", "role = \"?\"").replace("role = \"in\"", "role = \"out\"");
        let text = complaints("demo/scale/op.toml", &swapped.replace("role = \"?\"", "role = \"in\""));
        assert_eq!(text, "demo/scale/op.toml:47:1: outputs come before inputs");
    }

    #[test]
    fn the_space_is_bounded_without_overflow() {
        let with = |tactics: usize, values: u32| {
            let mut text = GOOD.to_owned();
            let mut defaults = String::new();
            for i in 0..tactics {
                let values: Vec<u32> = (0..values).collect();
                let _ = write!(text, "\n[[tactic]]\nname = \"t{i}\"\nsummary = \"x\"\nvalues = {values:?}\n");
                let _ = write!(defaults, ", t{i} = 0");
            }
            let text = text.replace("{ block = 128 }", &format!("{{ block = 128{defaults} }}"));
            complaints("demo/scale/op.toml", &text)
        };
        assert_eq!(with(3, 60), "", "864000 combinations");
        let expected = "demo/scale/op.toml:12:3: 1000188 combinations of axes and tactics; at most 1000000";
        assert_eq!(with(3, 63), expected);
        assert!(with(20, 1000).contains(": too many combinations of axes and tactics; at most 1000000"));
    }

    #[test]
    fn columns_count_characters_and_all_complaints_are_sorted() {
        let text =
            GOOD.replace("{ dtype = [\"f16\"], block", "{ \"é\" = [\"f16\"], blok").replace("n = 16\n", "n = 0\n");
        let expected = "demo/scale/op.toml:23:10: there is no axis or tactic `é`\n\
                        demo/scale/op.toml:23:25: there is no axis or tactic `blok`\n\
                        demo/scale/op.toml:68:1: `n` is out of its range";
        assert_eq!(complaints("demo/scale/op.toml", &text), expected);
    }
}
