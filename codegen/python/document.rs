//! Docstrings: what a function takes, gives and refuses, and an example.

use super::{WIDTH, scalar_text};
use parbake_model::dtype::DType;
use parbake_model::extent::Extent;
use parbake_model::function::{Function, Kind, Parameter, TARGET};
use parbake_model::op::{Axis, Dim, Op, Role, Scalar, ScalarType, Tensor};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes that of a function.
pub(crate) fn write(text: &mut String, op: &Op, f: &Function<'_>) {
    let mut doc = format!("\"\"\"{}.\n", op.summary);
    if let Some(peer) = f.peer {
        let fixed: String = peer.fixed.iter().map(|(n, v)| format!(", {n} = {v}")).collect();
        let _ = write!(doc, "\nTakes the arguments of `{}`{fixed}.\n", peer.name);
    }
    doc += "\nArgs:\n";
    for p in &f.parameters {
        let meaning = match p.kind {
            Kind::Tensor(t) => tensor_words(op, f, t),
            Kind::Scalar(s) => scalar_words(s),
            Kind::Choice(s, axis) => {
                let values = axis.values.iter().enumerate().map(|(i, v)| format!("\"{}\" ({i})", v.value));
                let values = values.collect::<Vec<_>>().join(", ");
                format!("{}: {values}; the name or the number.", capital(&s.summary))
            }
            Kind::Extent(d) => extent_words(op, f, d),
            Kind::Element(axis) => element_words(op, f, axis),
            Kind::Ignored(why) => format!("Accepted and ignored: {why}."),
        };
        let declared = p.kind.declared().filter(|name| *name != p.name).map(|name| format!("{name}. "));
        let _ = writeln!(doc, "    {}: {}{meaning}", p.name, declared.unwrap_or_default());
    }
    let _ = writeln!(
        doc,
        "    {TARGET}: \"host\" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device."
    );
    doc += "\nReturns:\n";
    doc += &format!("    {}\n", result_words(op, f));
    doc += "\nRaises:\n    TypeError: An argument is no tensor, or of another element type.\n    \
            ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.\n    \
            NotImplementedError: The combination does not exist on this architecture.\n    \
            parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.\n    \
            parbake.Error: Everything else.\n";
    // Others are called by functions that are written by hand, and those have an example.
    if super::is_public(f) {
        doc += "\nExample:\n";
        example(&mut doc, op, f);
    }
    let mut lines = Vec::new();
    for line in doc.lines() {
        wrap(line, &mut lines);
    }
    lines.iter().for_each(|l| *text += &format!("{l}\n"));
    text.push_str("    \"\"\"\n");
}

/// Breaks a line of a docstring between words; what follows is indented further.
fn wrap(line: &str, lines: &mut Vec<String>) {
    if line.is_empty() || line.trim_start().starts_with(">>>") {
        lines.push(if line.is_empty() { String::new() } else { format!("    {line}") });
        return;
    }
    let indent = 4 + line.len() - line.trim_start().len();
    let further = if indent > 4 { indent + 4 } else { indent };
    let mut current = " ".repeat(indent);
    for word in line.split_whitespace() {
        if current.chars().count() + word.chars().count() >= WIDTH {
            lines.push(current.trim_end().to_owned());
            current = " ".repeat(further);
        }
        current += word;
        current.push(' ');
    }
    lines.push(current.trim_end().to_owned());
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|c| c.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

fn dtypes(op: &Op, tensor: &Tensor) -> String {
    let axis = tensor.axis.as_ref().and_then(|name| op.axes.iter().find(|a| &a.name == name));
    match (axis, tensor.dtype) {
        (Some(axis), _) => axis.values.iter().map(|v| v.value.as_str()).collect::<Vec<_>>().join(" or "),
        (None, dtype) => dtype.map(|d| d.to_string()).unwrap_or_default(),
    }
}

/// The symbol that several leading dimensions of a tensor may stand for.
fn folds<'a>(op: &'a Op, t: &Tensor) -> Option<&'a Dim> {
    t.shape.first().and_then(|s| op.dim(s)).filter(|d| d.folds)
}

/// A tensor's shape: `[..., 2*hidden]`.
pub(crate) fn shape(op: &Op, t: &Tensor) -> String {
    let leading = folds(op, t).map(|d| d.name.as_str());
    let extents: Vec<_> = t.shape.iter().map(|s| if leading == Some(s) { "..." } else { s }).collect();
    format!("[{}]", extents.join(", "))
}

fn tensor_words(op: &Op, f: &Function<'_>, t: &Tensor) -> String {
    let (extents, mut ranges) = (t.extents(), Vec::new());
    for d in extents.iter().flat_map(Extent::symbols).filter_map(|s| op.dim(s)) {
        let range = format!("{} {} to {}", d.name, d.min, d.max);
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    let ranges: String =
        ranges.iter().enumerate().map(|(i, r)| format!("{}{r}", if i == 0 { "; " } else { ", " })).collect();
    let dense = match t.dense {
        0 => "any strides".to_owned(),
        n if n == t.shape.len() => "dense".to_owned(),
        1 => "the last dimension dense".to_owned(),
        n => format!("the last {n} dimensions dense"),
    };
    let role = match t.role {
        Role::In => "read",
        Role::Out => "written",
        Role::InOut => "read and overwritten",
    };
    let mut words = format!("{}. {} {}, {dense}, {role}{ranges}.", capital(&t.summary), dtypes(op, t), shape(op, t));
    // Several leading dimensions may stand for the first.
    if let Some(dim) = folds(op, t) {
        let _ = write!(
            words,
            " The leading dimensions are the {}: as one, or as many whose strides let them be one.",
            dim.name
        );
        if let (Some(peer), Role::In) = (f.peer, t.role) {
            let name = f.argument(&t.name).unwrap_or(&t.name);
            let _ = write!(
                words,
                " Others are a ValueError, also where `{}` takes them: `{name}.contiguous()` helps.",
                peer.name
            );
        }
    }
    let mut others = op.tensors.iter().filter(|o| o.axis.is_some() && o.axis == t.axis && o.name != t.name).peekable();
    if t.role == Role::In && others.peek().is_some() {
        if op.tensors.iter().all(|o| o.axis == t.axis) {
            words += " All tensors have one element type.";
        } else {
            let names: Vec<_> = others.filter_map(|o| f.argument(&o.name)).map(|n| format!("`{n}`")).collect();
            if !names.is_empty() {
                let _ = write!(words, " It has the element type of {}.", names.join(", "));
            }
        }
    }
    if t.optional && t.role == Role::Out {
        words += " Computed if it is given, or if it is True: then it is allocated.";
    } else if f.allocates(t) {
        words += " Allocated if it is not given.";
    } else if t.optional {
        words += " It may be absent.";
    }
    let may: Vec<_> = t.may_be.iter().filter_map(|o| f.argument(o)).map(|o| format!("`{o}`")).collect();
    if !may.is_empty() {
        let _ = write!(words, " It may be the very memory of {}, and overlaps nothing else.", may.join(" or "));
    }
    words
}

fn scalar_words(s: &Scalar) -> String {
    match s.kind {
        ScalarType::Bool => format!("{}.", capital(&s.summary)),
        ScalarType::F32 => format!("{} ({} to {}; never NaN).", capital(&s.summary), s.min, s.max),
        ScalarType::I32 | ScalarType::I64 => {
            format!("{} (a whole number, {} to {}).", capital(&s.summary), s.min, s.max)
        }
    }
}

/// Outputs of a function for which something is open.
fn outputs_with(f: &Function<'_>, open: &dyn Fn(&Tensor) -> bool) -> String {
    let names = f.outputs.iter().filter(|t| open(t)).map(|t| format!("`{}`", f.argument(&t.name).unwrap_or(&t.name)));
    names.collect::<Vec<_>>().join(" and ")
}

fn extent_words(op: &Op, f: &Function<'_>, d: &Dim) -> String {
    let of = outputs_with(f, &|t| op.open_extents(&[t]).iter().any(|o| o.name == d.name));
    let needed = if f.hidden().next().is_some() { "" } else { "; needed if they are not given" };
    format!("{}, of {of}{needed} ({} to {}).", capital(&d.summary), d.min, d.max)
}

fn element_words(op: &Op, f: &Function<'_>, axis: &Axis) -> String {
    let of = outputs_with(f, &|t| t.axis.as_ref() == Some(&axis.name));
    let values: Vec<_> = axis.values.iter().map(|v| format!("\"{}\"", v.value)).collect();
    let given = op.tensors.iter().any(|t| t.role != Role::Out && t.axis.as_ref() == Some(&axis.name));
    let otherwise = if given { "that of the inputs of that type, or the first" } else { "the first" };
    format!(
        "The element type that {of} is allocated with: {}, or as the framework names it; without it {otherwise}.",
        values.join(" or ")
    )
}

fn result_words(op: &Op, f: &Function<'_>) -> String {
    let inout = op.tensors.iter().any(|t| t.role == Role::InOut);
    let arrays = "From JAX, new arrays in the order of the arguments that change.";
    let names: Vec<_> = f.outputs.iter().map(|t| format!("`{}`", f.argument(&t.name).unwrap_or(&t.name))).collect();
    match (&names[..], inout) {
        ([], true) => format!("None: it works in place. {arrays}"),
        ([], false) => format!("None: outputs are written to. {arrays}"),
        ([one], false) => format!("{one}."),
        (several, false) => format!("{}, as a tuple.", several.join(", ")),
        (some, true) => {
            format!("{}. From JAX, these and then new arrays for the arguments that change.", some.join(", "))
        }
    }
}

/// What a symbol or an expression is in an example.
fn extent(sizes: &BTreeMap<String, i64>, extent: &Extent) -> i64 {
    extent.value(&mut |name| Some(sizes.get(name).copied().unwrap_or(1))).unwrap_or(1)
}

/// A call with the sizes of the first trace example.
fn example(doc: &mut String, op: &Op, f: &Function<'_>) {
    doc.push_str("    >>> import parbake, torch\n");
    let Some(sizes) = op.trace.examples.first() else { return };
    let needed = |p: &&Parameter<'_>| {
        // Outputs are allocated here, and then their extents are needed.
        !f.is_optional(p) || matches!(p.kind, Kind::Extent(_))
    };
    let (mut arguments, mut named) = (Vec::new(), false);
    for p in &f.parameters {
        if !needed(&p) {
            named = true;
            continue;
        }
        let value = match p.kind {
            Kind::Tensor(t) => {
                let shape: Vec<_> = t.extents().iter().map(|e| extent(sizes, e).to_string()).collect();
                let dtype = dtypes(op, t).split(' ').next().and_then(DType::named).unwrap_or(DType::F32);
                let _ = writeln!(doc, "    >>> {} = {}", p.name, random(&shape.join(", "), dtype));
                p.name.clone()
            }
            Kind::Scalar(s) => scalar_text(s, ((s.min + s.max) / 2.0).max(s.min).floor().max(s.min)),
            Kind::Choice(_, axis) => axis.values.first().map(|v| format!("\"{}\"", v.value)).unwrap_or_default(),
            Kind::Extent(d) => sizes.get(&d.name).copied().unwrap_or(1).to_string(),
            Kind::Element(_) | Kind::Ignored(_) => continue,
        };
        arguments.push(if named { format!("{}={value}", p.name) } else { value });
    }
    let outputs: Vec<_> = f.outputs.iter().map(|t| f.argument(&t.name).unwrap_or(&t.name)).collect();
    let result = if outputs.is_empty() { String::new() } else { format!("{} = ", outputs.join(", ")) };
    let _ = writeln!(doc, "    >>> {result}parbake.{}({})", f.name, arguments.join(", "));
}

/// A tensor of PyTorch.
fn random(shape: &str, dtype: DType) -> String {
    let name = torch(dtype);
    match dtype {
        DType::F16 | DType::Bf16 | DType::F32 => format!("torch.randn({shape}, dtype=torch.{name}, device=\"cuda\")"),
        DType::E4m3 | DType::E5m2 => format!("torch.randn({shape}, device=\"cuda\").to(torch.{name})"),
        _ => {
            format!("torch.zeros({}, dtype=torch.{name}, device=\"cuda\")", if shape.is_empty() { "()" } else { shape })
        }
    }
}

/// What PyTorch calls an element type.
fn torch(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::F32 => "float32",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::Bool => "bool",
        DType::E4m3 => "float8_e4m3fn",
        DType::E5m2 => "float8_e5m2",
    }
}
