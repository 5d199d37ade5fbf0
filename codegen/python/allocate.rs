//! How an output comes to be that the caller does not give: shape and element type, as Python text over the arguments.

use parbake_model::extent::{Binding, Extent};
use parbake_model::function::Function;
use parbake_model::op::{Op, Tensor};

/// Shape and element type of an output.
pub(crate) struct Allocation {
    /// The argument after which it is allocated.
    pub(crate) after: String,
    /// Whether it has that argument's shape and element type.
    pub(crate) like: bool,
    /// The shape: `(*input.shape[:-1], input.shape[-1] // 2)`.
    pub(crate) shape: String,
    /// The element type.
    pub(crate) element: Element,
}

/// Where an element type comes from.
pub(crate) enum Element {
    /// From an argument: `input.dtype`.
    Of(String),
    /// A name, as Python text: `"e4m3"`, or what chooses one.
    Named(String),
}

impl Allocation {
    /// What the fast path says: a call of PyTorch.
    pub(crate) fn torch(&self) -> String {
        let Self { after, like, shape, element } = self;
        match element {
            _ if *like => format!("_empty_like({after})"),
            Element::Of(dtype) if *dtype == format!("{after}.dtype") => format!("{after}.new_empty({shape})"),
            Element::Of(dtype) => format!("{after}.new_empty({shape}, dtype={dtype})"),
            Element::Named(name) => format!("{after}.new_empty({shape}, dtype=_types[{name}])"),
        }
    }

    /// Shape and element type as a pair, for every other framework.
    pub(crate) fn pair(&self) -> String {
        let (Element::Of(element) | Element::Named(element)) = &self.element;
        format!("({}, {element})", self.shape)
    }
}

/// How `f` allocates an output.
pub(crate) fn of(op: &Op, f: &Function<'_>, output: &Tensor) -> Allocation {
    let argument = |t: &Tensor| f.argument(&t.name).unwrap_or_default().to_owned();
    let shares = |t: &&Tensor| output.axis.is_some() && t.axis == output.axis;
    let after = op.like(output).or_else(|| op.given().find(shares)).or_else(|| op.given().next());
    let after = after.map(argument).unwrap_or_default();
    let element = match (op.given().find(shares), &output.dtype) {
        (Some(t), _) => Element::Of(format!("{}.dtype", argument(t))),
        (None, Some(dtype)) => Element::Named(format!("\"{dtype}\"")),
        (None, None) => Element::Named(chosen(op, f, output)),
    };
    Allocation { after, like: op.like(output).is_some(), shape: shape(op, f, output), element }
}

/// The element type that no input always has: the caller's, that of an input which is there, or the first.
fn chosen(op: &Op, f: &Function<'_>, output: &Tensor) -> String {
    let axis = op.axes.iter().find(|a| Some(&a.name) == output.axis.as_ref());
    let name = axis.map(|a| a.name.as_str()).unwrap_or_default();
    let fixed = f.peer.and_then(|p| p.fixed.get(name)).map(|value| format!("\"{value}\""));
    let first = || axis.and_then(|a| a.values.first()).map(|v| format!("\"{}\"", v.value)).unwrap_or_default();
    let mut text = fixed.unwrap_or_else(first);
    let maybe = |t: &&Tensor| t.role != parbake_model::op::Role::Out && t.axis == output.axis;
    for argument in op.tensors.iter().filter(maybe).filter_map(|t| f.argument(&t.name)) {
        text = format!("{argument}.dtype if {argument} is not None else {text}");
    }
    if let Some(argument) = f.argument(name) {
        text = format!("{argument} if {argument} is not None else {text}");
    }
    text
}

fn shape(op: &Op, f: &Function<'_>, output: &Tensor) -> String {
    if let Some(argument) = op.given().find(|t| t.shape == output.shape).and_then(|t| f.argument(&t.name)) {
        return format!("{argument}.shape");
    }
    let extents = output.extents();
    let leading = |e: &Extent| {
        let symbol = e.symbol()?;
        let t = op.given().find(|t| folds(op, t) == Some(symbol))?;
        Some(leading_of(f.argument(&t.name)?, t.extents().len()))
    };
    let mut parts = Vec::new();
    for (i, extent) in extents.iter().enumerate() {
        match leading(extent).filter(|_| i == 0) {
            Some(several) if extents.len() == 1 => return several,
            Some(several) => parts.push(format!("*{several}")),
            None => parts.push(python(op, f, extent)),
        }
    }
    format!("({}{})", parts.join(", "), if parts.len() == 1 { "," } else { "" })
}

/// The symbol that several leading dimensions of a tensor may stand for.
fn folds<'a>(op: &'a Op, tensor: &Tensor) -> Option<&'a str> {
    let first = Extent::parse(tensor.shape.first()?).ok()?;
    op.dims.iter().find(|d| d.folds && first.symbol() == Some(&d.name)).map(|d| d.name.as_str())
}

fn leading_of(argument: &str, rank: usize) -> String {
    if rank == 1 { format!("{argument}.shape") } else { format!("{argument}.shape[:-{}]", rank - 1) }
}

/// An extent.
fn python(op: &Op, f: &Function<'_>, extent: &Extent) -> String {
    let part = |e: &Extent| {
        let text = python(op, f, e);
        if text.contains(' ') { format!("({text})") } else { text }
    };
    match extent {
        Extent::Number(n) => n.to_string(),
        Extent::Symbol(name) => symbol(op, f, name),
        Extent::Add(a, b) => format!("{} + {}", python(op, f, a), python(op, f, b)),
        Extent::Multiply(a, b) => format!("{} * {}", part(a), part(b)),
        // Rounded up.
        Extent::Divide(a, b) => format!("-(-{} // {})", part(a), part(b)),
        Extent::Pad(a, n) => format!("-(-{} // {n}) * {n}", part(a)),
    }
}

/// The value of a symbol.
fn symbol(op: &Op, f: &Function<'_>, name: &str) -> String {
    if let Some(value) = op.given().find_map(|t| says(op, f, t, name)) {
        return value;
    }
    // Of an input that may be absent, or of the caller.
    let mut text = f.argument(name).unwrap_or("None").to_owned();
    let maybe = |t: &&Tensor| t.role != parbake_model::op::Role::Out && t.optional;
    for t in op.tensors.iter().filter(maybe) {
        if let (Some(argument), Some(value)) = (f.argument(&t.name), says(op, f, t, name)) {
            text = format!("({value} if {argument} is not None else {text})");
        }
    }
    text
}

/// The value of a symbol as a tensor says it.
fn says(op: &Op, f: &Function<'_>, tensor: &Tensor, name: &str) -> Option<String> {
    let argument = f.argument(&tensor.name)?;
    let extents = tensor.extents();
    let found = extents.iter().enumerate().filter_map(|(i, e)| Some((i, e.binds().filter(|b| b.symbol == name)?)));
    // That says it alone, if there is one.
    let (i, Binding { factor, rest, .. }) = found.min_by_key(|(_, b)| (b.factor, b.rest))?;
    let rank = extents.len();
    let extent = match folds(op, tensor) {
        Some(_) if i == 0 => format!("_product({})", leading_of(argument, rank)),
        Some(_) => format!("{argument}.shape[-{}]", rank - i),
        None if i + 1 == rank && rank > 1 => format!("{argument}.shape[-1]"),
        None => format!("{argument}.shape[{i}]"),
    };
    let less = if rest == 0 { extent } else { format!("({extent} - {rest})") };
    Some(if factor == 1 { less } else { format!("{less} // {factor}") })
}
