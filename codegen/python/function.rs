//! A function of a family's module: its fast path, how it is traced, and its row of facts.

use super::{allocate, document, number, scalar_text, signature};
use parbake_model::function::{Function, Kind, Parameter, TARGET};
use parbake_model::op::{Op, Role, Scalar, ScalarType, Tensor};
use std::fmt::Write as _;

/// Writes one.
pub(crate) fn write(text: &mut String, op: &Op, f: &Function<'_>) {
    let _ = writeln!(text, "\n\ndef {}({}):", f.name, signature(f));
    document::write(text, op, f);
    let real: Vec<_> = f.parameters.iter().filter(|p| !matches!(p.kind, Kind::Ignored(_))).collect();
    let writer = Writer { op, f, row: format!("_ROW_{}", f.name.to_uppercase()), real };
    writer.fast_path(text);
    writer.traced(text);
    writer.facts(text);
}

/// Where a module keeps the numbers behind the names of a choice.
pub(crate) fn choices(op: &Op, scalar: &Scalar) -> String {
    let place = op.scalars.iter().position(|s| s.name == scalar.name).unwrap_or_default();
    format!("_choices_{}_{place}", op.name)
}

struct Writer<'a> {
    op: &'a Op,
    f: &'a Function<'a>,
    row: String,
    /// Without those that are ignored.
    real: Vec<&'a Parameter<'a>>,
}

impl<'a> Writer<'a> {
    fn tensors(&self) -> impl Iterator<Item = (&'a str, &'a Tensor)> {
        self.real.iter().filter_map(|p| if let Kind::Tensor(t) = p.kind { Some((p.name.as_str(), t)) } else { None })
    }

    fn names(&self) -> String {
        self.real.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// What holds an output: the argument, or a variable of ours.
    fn variable(&self, output: &Tensor) -> String {
        self.f.argument(&output.name).map_or_else(|| format!("_made_{}", output.name), str::to_owned)
    }

    /// What is returned: nothing, an output, or several.
    fn result(&self) -> String {
        let names: Vec<_> = self.f.outputs.iter().map(|t| self.variable(t)).collect();
        if names.is_empty() { "None".to_owned() } else { names.join(", ") }
    }

    /// Tensors of PyTorch on their way into TVM FFI; every other case is one call of what is written by hand.
    fn fast_path(&self, text: &mut String) {
        let f = self.f;
        let _ = writeln!(text, "    if (\n        {TARGET} is None");
        for (name, t) in self.tensors().filter(|(_, t)| !f.allocates(t)) {
            // What is written is no parameter: that would be training.
            let test = if t.role == Role::In { "in _TENSORS" } else { "is _Tensor" };
            let _ = if t.optional {
                writeln!(text, "        and ({name} is None or type({name}) {test})")
            } else {
                writeln!(text, "        and type({name}) {test}")
            };
        }
        for (name, t) in self.tensors().filter(|(_, t)| f.allocates(t)) {
            let _ = writeln!(text, "        and {}", self.condition(name, t));
        }
        let _ = writeln!(text, "        and _forward._current_level < 0");
        text.push_str("        and not (_modes() or _tracing())\n");
        // Looked at here, it costs nothing where no gradients are recorded.
        let always = |t: &Tensor| t.role != Role::Out && !t.optional;
        let sure = self.tensors().filter(|(_, t)| always(t)).map(|(name, _)| format!("{name}.requires_grad"));
        let others = self.tensors().filter(|(_, t)| !always(t));
        let others = others.map(|(name, _)| format!("getattr({name}, \"requires_grad\", False)"));
        let gradients: Vec<_> = sure.chain(others).collect();
        let all = gradients.join(" or ");
        if all.len() > 88 {
            let lines = gradients.join("\n                or ");
            let _ = writeln!(
                text,
                "        and not (\n            _grad()\n            and (\n                {lines}\n            )\n        )"
            );
        } else if !gradients.is_empty() {
            let _ = writeln!(text, "        and not (_grad() and ({all}))");
        }
        let otherwise = format!("return _call({}, {TARGET}, {})", self.row, self.names());
        text.push_str("    ):\n        try:\n");
        f.outputs.iter().for_each(|output| self.output(text, output));
        let native = format!("_native_{}({})", self.op.name, self.native().join(", "));
        let _ = writeln!(text, "            {native}\n            return {}", self.result());
        let scalars = self.real.iter().filter(|p| matches!(p.kind, Kind::Scalar(_)));
        let scalars: String = scalars.map(|p| format!(", {}", p.name)).collect();
        let _ = writeln!(text, "        except Exception as _error:");
        let _ = writeln!(text, "            if not _unclear(_error{scalars}):\n                raise");
        let _ = writeln!(text, "    {otherwise}");
    }

    /// What the fast path asks of an output that it may be given. Given one, its extents and its element type are known.
    fn condition(&self, name: &str, output: &Tensor) -> String {
        let open = self.op.open_extents(&[output]).into_iter().map(|d| &d.name);
        let open = open.chain(self.op.open_elements(&[output]).into_iter().map(|a| &a.name));
        let open = open.filter_map(|n| self.f.argument(n)).map(|n| format!(" and {n} is None"));
        let mut ways = vec![format!("{name} is None")];
        ways.extend(output.optional.then(|| format!("type({name}) is bool")));
        ways.push(format!("type({name}) is _Tensor{}", open.collect::<String>()));
        let line = format!("({})", ways.join(" or "));
        if line.len() > 105 { format!("(\n            {}\n        )", ways.join("\n            or ")) } else { line }
    }

    /// Allocates an output on the fast path, if it is not given.
    fn output(&self, text: &mut String, output: &Tensor) {
        let made = allocate::of(self.op, self.f, output).torch();
        let name = self.variable(output);
        let _ = if self.f.argument(&output.name).is_none() {
            writeln!(text, "            {name} = {made}")
        } else if output.optional {
            let asked = format!("            if {name} is True:\n                {name} = {made}\n");
            writeln!(text, "{asked}            elif {name} is False:\n                {name} = None")
        } else {
            writeln!(text, "            if {name} is None:\n                {name} = {made}")
        };
    }

    /// What TVM FFI is handed: tensors, then scalars up to the last that is not at its default.
    fn native(&self) -> Vec<String> {
        let Self { op, f, .. } = self;
        let tensor = |t: &Tensor| match f.argument(&t.name) {
            Some(name) => name.to_owned(),
            None if f.allocates(t) => self.variable(t),
            None => "None".to_owned(),
        };
        let needed = |s: &Scalar| f.argument(&s.name).is_some() || s.default != Some(self.fixed(s));
        let count = op.scalars.iter().rposition(needed).map_or(0, |last| last + 1);
        let scalar = |s: &Scalar| match f.argument(&s.name) {
            Some(name) if op.choice(s).is_some() => format!("{}[{name}]", choices(op, s)),
            Some(name) => name.to_owned(),
            None => scalar_text(s, self.fixed(s)),
        };
        op.tensors.iter().map(tensor).chain(op.scalars[..count].iter().map(scalar)).collect()
    }

    /// The value of a scalar that is no argument.
    fn fixed(&self, scalar: &Scalar) -> f64 {
        let constant = self.f.peer.and_then(|p| p.fixed.get(&scalar.name));
        constant.and_then(|c| self.op.number(scalar, c)).or(scalar.default).unwrap_or_default()
    }

    /// What a compiler of PyTorch follows instead.
    fn traced(&self, text: &mut String) {
        let Self { f, row, .. } = self;
        let operator = format!("_operators.{}", f.name.trim_start_matches('_'));
        let _ = writeln!(text, "\n\ndef _traced_{}({}):", f.name, signature(f));
        for (place, p) in self.real.iter().enumerate() {
            let name = &p.name;
            let _ = match p.kind {
                Kind::Scalar(s) => match s.default {
                    Some(default) => {
                        writeln!(text, "    if {name} is None:\n        {name} = {}", scalar_text(s, default))
                    }
                    None => Ok(()),
                },
                Kind::Choice(..) | Kind::Element(_) => writeln!(text, "    {name} = _chosen({row}, {place}, {name})"),
                _ => Ok(()),
            };
        }
        let _ = writeln!(text, "    _operators = _traced({row}, {})", self.names());
        let list = |keep: &dyn Fn(&Parameter<'_>) -> bool| -> String {
            self.real.iter().filter(|p| keep(p)).map(|p| format!("{}, ", p.name)).collect()
        };
        let allocated = |p: &Parameter<'_>| matches!(p.kind, Kind::Tensor(t) if f.allocates(t));
        let inputs = list(&|p| !allocated(p));
        let (visible, hidden): (Vec<_>, Vec<_>) = f.outputs.iter().partition(|t| f.argument(&t.name).is_some());
        if visible.is_empty() {
            let answer = if f.outputs.is_empty() { "" } else { "return " };
            let _ = writeln!(text, "    {answer}{operator}({inputs}{TARGET})");
            return;
        }
        let absent = |t: &&&Tensor| {
            let name = self.variable(t);
            if t.optional { format!("({name} is None or {name} is False)") } else { format!("{name} is None") }
        };
        let absent: Vec<_> = visible.iter().map(absent).collect();
        let line = absent.join(" and ");
        let _ = if line.len() > 110 {
            writeln!(text, "    if (\n        {}\n    ):", absent.join("\n        and "))
        } else {
            writeln!(text, "    if {line}:")
        };
        let needed: Vec<_> = f.outputs.iter().filter(|t| !t.optional).map(|t| self.variable(t)).collect();
        if needed.len() == f.outputs.len() {
            let _ = writeln!(text, "        return {operator}({inputs}{TARGET})");
        } else {
            let results = if needed.is_empty() { String::new() } else { format!("{} = ", needed.join(", ")) };
            let _ = writeln!(text, "        {results}{operator}({inputs}{TARGET})");
            let all = f.outputs.iter().map(|t| if t.optional { "None".to_owned() } else { self.variable(t) });
            let _ = writeln!(text, "        return {}", all.collect::<Vec<_>>().join(", "));
        }
        let several = f.outputs.len() > 1;
        for (i, output) in f.outputs.iter().enumerate() {
            let name = self.variable(output);
            let made = format!("{name} = _filled({row}, {i}, {})", self.names());
            if f.argument(&output.name).is_none() {
                let _ = writeln!(text, "    {made}");
            } else if output.optional {
                let _ = writeln!(
                    text,
                    "    if {name} is True:\n        {made}\n    elif {name} is False:\n        {name} = None"
                );
            } else if several {
                let _ = writeln!(text, "    if {name} is None:\n        {made}");
            }
        }
        let given = list(&|p| !matches!(p.kind, Kind::Extent(_) | Kind::Element(_)));
        let hidden: String = hidden.iter().map(|t| format!("{}, ", self.variable(t))).collect();
        let _ = writeln!(text, "    {operator}_out({given}{hidden}{TARGET})\n    return {}", self.result());
    }

    /// The facts of both, for everything else.
    fn facts(&self, text: &mut String) {
        let Self { op, f, row, real } = self;
        let name = &f.name;
        let _ = writeln!(
            text,
            "\n\n{row} = _Function(\n    public={name},\n    traced=_traced_{name},\n    op=\"{}\",",
            op.name
        );
        text.push_str("    # Argument: role, and its shape, its default or its values.\n    parameters=(\n");
        let hidden: Vec<_> = f.hidden().collect();
        let tensor = |t: &Tensor| {
            let role = match t.role {
                Role::In => "in",
                Role::Out => "out",
                Role::InOut => "inout",
            };
            let shape = document::shape(op, t);
            format!("\"{role}{}\", \"{shape}\"", if t.optional { "?" } else { "" })
        };
        for p in real {
            let fact = match p.kind {
                Kind::Tensor(t) => tensor(t),
                Kind::Scalar(s) => {
                    let role = match s.kind {
                        ScalarType::F32 => "float",
                        ScalarType::I32 | ScalarType::I64 => "int",
                        ScalarType::Bool => "bool",
                    };
                    let default = s.default.map_or("None".to_owned(), |d| scalar_text(s, d));
                    format!("\"{role}\", {default}")
                }
                Kind::Choice(s, _) => format!("\"choice\", {}", choices(op, s)),
                Kind::Extent(_) => "\"extent\", None".to_owned(),
                Kind::Element(a) => {
                    let values: String = a.values.iter().map(|v| format!("\"{}\", ", v.value)).collect();
                    format!("\"element\", ({})", values.trim_end())
                }
                Kind::Ignored(_) => continue,
            };
            let _ = writeln!(text, "        (\"{}\", {fact}),", p.name);
        }
        for t in &hidden {
            let _ = writeln!(text, "        (\"{}\", {}),", t.name, tensor(t));
        }
        text.push_str("    ),\n    # What the op is called with: arguments by their place, or a number.\n");
        let place = |declared: &str| {
            let hidden = || hidden.iter().position(|t| t.name == declared).map(|i| real.len() + i);
            real.iter().position(|p| p.kind.declared() == Some(declared)).or_else(hidden)
        };
        let tensors = op.tensors.iter().map(|t| place(&t.name).map_or("None".to_owned(), |i| i.to_string()));
        let _ = writeln!(text, "    tensors=({},),\n    scalars=(", tensors.collect::<Vec<_>>().join(", "));
        for s in &op.scalars {
            let _ = match place(&s.name) {
                Some(i) => writeln!(text, "        (\"{}\", {i}, None),", s.name),
                None => writeln!(text, "        (\"{}\", None, {}),", s.name, scalar_text(s, self.fixed(s))),
            };
        }
        text.push_str("    ),\n");
        if f.outputs.is_empty() {
            text.push_str(")\n");
            return;
        }
        text.push_str("    # Outputs that are returned: their place, and shape and element type after the arguments.\n    outputs=(\n");
        let arguments: String = real.iter().map(|p| format!("{}, ", p.name)).collect();
        for output in &f.outputs {
            let pair = allocate::of(op, f, output).pair();
            let place = place(&output.name).unwrap_or_default();
            let _ = writeln!(text, "        ({place}, lambda {arguments}*_: {pair}),");
        }
        text.push_str("    ),\n");
        if !hidden.is_empty() {
            let _ = writeln!(text, "    hidden={},", hidden.len());
        }
        text.push_str(")\n");
    }
}

/// The numbers behind the names of an op's choices, one table for each.
pub(crate) fn tables(text: &mut String, op: &Op) {
    for scalar in &op.scalars {
        let Some(axis) = op.choice(scalar) else { continue };
        let default = scalar.default.map(|d| format!("None: {}, ", number(d, true))).unwrap_or_default();
        let values = axis.values.iter().enumerate().map(|(i, v)| format!("\"{}\": {i}, {i}: {i}", v.value));
        let values = values.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "{} = {{{default}{values}}}", choices(op, scalar));
    }
}
