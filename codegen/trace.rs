//! Trace definitions: each op at its realistic shapes, in the schema of flashinfer-bench, so that tools which exchange
//! workloads and solutions know what an op computes. `[trace]` of op.toml says the shapes, `reference.py` the result.
//!
//! What the schema cannot say is spelled in its terms:
//! - an extent that is an expression is an axis of its own, with a constraint that says the expression;
//! - a tensor that is overwritten is an input, and an output `<name>_out`, and there is a tag `inplace:<name>`;
//! - bytes (u8) are `int8`, and the reference is wrapped to see them as what they are;
//! - optional tensors are left out, unless `given` of `[trace]` names them.

use crate::registry::{Entry, Registry};
use parbake_model::dtype::DType;
use parbake_model::extent::Extent;
use parbake_model::identity::Spec;
use parbake_model::op::{Op, Role, Tensor};
use parbake_model::source::KernelTree;
use parbake_model::space;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Where definitions lie, below the project's root.
pub(crate) const FOLDER: &str = "generated-manifest/definitions";

/// A JSON object whose members keep their order.
struct Ordered<'a, T>(&'a [(String, T)]);

impl<T: Serialize> Serialize for Ordered<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Every definition: path below the root → text.
///
/// # Errors
/// What keeps an op from having one: a reference that takes something else, or names that clash.
pub(crate) fn render(registry: &Registry) -> Result<BTreeMap<String, String>, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in &registry.entries {
        match definitions(&registry.tree, entry) {
            Ok(made) => {
                for (path, text) in made {
                    if files.get(&path).is_some_and(|there| *there != text) {
                        wrong.push(format!("{}: another op has the definition {path}", entry.op.path()));
                    }
                    files.insert(path, text);
                }
            }
            Err(why) => wrong.push(format!("{}: {why}", entry.op.path())),
        }
    }
    if wrong.is_empty() { Ok(files) } else { Err(wrong.join("\n")) }
}

fn definitions(tree: &KernelTree, entry: &Entry) -> Result<BTreeMap<String, String>, String> {
    let op = &entry.op;
    let source = tree.read(&format!("{}/reference.py", op.path())).map_err(|e| e.to_string())?;
    check_signature(op, source.text())?;
    let mut files = BTreeMap::new();
    for example in &op.trace.examples {
        let definition = Definition::new(op, example, source.text())?;
        let path = format!("{FOLDER}/{}/{}.json", op.trace.op_type, definition.name);
        let text = definition.json(source.text());
        // Examples that differ in nothing constant are workloads of one definition.
        if files.insert(path, text.clone()).is_some_and(|before| before != text) {
            return Err(format!("two examples are both `{}`; make what differs a constant", definition.name));
        }
    }
    Ok(files)
}

/// What `reference.py` takes: inputs, then scalars, in the order of op.toml.
fn parameters(op: &Op) -> Vec<(&str, bool)> {
    let tensors = op.tensors.iter().filter(|t| t.role != Role::Out).map(|t| (t.name.as_str(), t.optional));
    tensors.chain(op.scalars.iter().map(|s| (s.name.as_str(), s.default.is_some()))).collect()
}

/// What no input says of the outputs: extents by the symbol's name, element types by the axis' name.
fn open(op: &Op) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let written: Vec<&Tensor> = op.tensors.iter().filter(|t| t.role == Role::Out && has(op, t)).collect();
    let extents = op.open_extents(&written).into_iter().map(|d| d.name.as_str()).collect();
    (extents, op.open_elements(&written).into_iter().map(|a| a.name.as_str()).collect())
}

/// Compares the parameters of `run` with what op.toml declares. Behind those may stand what no input says of the
/// outputs, and anything that has a default.
fn check_signature(op: &Op, source: &str) -> Result<(), String> {
    let expected = parameters(op);
    let names = signature(source).ok_or("reference.py has no function `run` at its top level")?;
    let (extents, _) = open(op);
    let (taken, more) = names.split_at(expected.len().min(names.len()));
    let extra = more.iter().find(|(name, default)| !default && !extents.contains(name.as_str()));
    if !taken.iter().map(|(name, _)| name.as_str()).eq(expected.iter().map(|(name, _)| *name)) || extra.is_some() {
        let list = |names: Vec<&str>| names.join(", ");
        return Err(format!(
            "reference.py: `run` takes ({}), and op.toml declares ({})",
            list(names.iter().map(|(name, _)| name.as_str()).collect()),
            list(expected.iter().map(|(name, _)| *name).collect())
        ));
    }
    Ok(())
}

/// The parameters of the function `run` of a Python source, and whether they have defaults.
fn signature(source: &str) -> Option<Vec<(String, bool)>> {
    let start = source.match_indices("def run(").find(|(at, _)| *at == 0 || source[..*at].ends_with('\n'))?.0;
    let inside = &source[start + "def run(".len()..];
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inside.chars() {
        match c {
            ')' if depth == 0 => break,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut()?.push(c);
    }
    let names = parts.iter().map(|p| p.trim()).filter(|p| !p.is_empty() && *p != "*" && *p != "/");
    Some(names.map(|p| (p.split([':', '=']).next().unwrap_or(p).trim().to_owned(), p.contains('='))).collect())
}

struct Definition<'a> {
    op: &'a Op,
    name: String,
    axes: Vec<(String, Value)>,
    constraints: Vec<String>,
    inputs: Vec<(String, Value)>,
    outputs: Vec<(String, Value)>,
    /// Element types that no input has: axis and value.
    elements: Vec<(String, String)>,
}

impl<'a> Definition<'a> {
    fn new(op: &'a Op, example: &BTreeMap<String, i64>, source: &str) -> Result<Self, String> {
        let spec = spec(op, example).ok_or("no spec exists for an example")?;
        let constants = &op.trace.constants;
        let mut name = op.trace.name_prefix.clone();
        let mut axes = Vec::new();
        for dim in &op.dims {
            let about = json!(dim.summary);
            axes.push(match constants.get(&dim.name) {
                Some(short) => {
                    let value = example[&dim.name];
                    let _ = write!(name, "_{short}{value}");
                    (dim.name.clone(), json!({ "type": "const", "value": value, "description": about }))
                }
                None => (dim.name.clone(), json!({ "type": "var", "description": about })),
            });
        }
        let mut made = Self {
            op,
            name,
            axes,
            constraints: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            elements: Vec::new(),
        };
        for tensor in op.tensors.iter().filter(|t| has(op, t)) {
            let row = made.tensor(tensor, &spec, example)?;
            if tensor.role != Role::Out {
                made.inputs.push((tensor.name.clone(), row.clone()));
            }
            if tensor.role != Role::In {
                let name =
                    if tensor.role == Role::InOut { format!("{}_out", tensor.name) } else { tensor.name.clone() };
                made.outputs.push((name, row));
            }
        }
        for scalar in &op.scalars {
            let default = scalar.default.map_or(String::new(), |d| format!(" (default {d})"));
            let dtype = match scalar.kind.name() {
                "f32" => "float32",
                "i32" => "int32",
                "i64" => "int64",
                other => other,
            };
            let about = format!("{}{default}", scalar.summary);
            made.inputs.push((scalar.name.clone(), json!({ "shape": null, "dtype": dtype, "description": about })));
        }
        // What no input says of the outputs is an input too, if the reference asks for it.
        let taken = signature(source).unwrap_or_default();
        let takes = |name: &str| taken.iter().any(|(n, _)| n == name);
        let (extents, elements) = open(op);
        for dim in op.dims.iter().filter(|d| extents.contains(d.name.as_str()) && takes(&d.name)) {
            let about = format!("{}; no input has it", dim.summary);
            made.inputs.push((dim.name.clone(), json!({ "shape": null, "dtype": "int64", "description": about })));
        }
        made.elements = elements.into_iter().map(|axis| (axis.to_owned(), value(&spec, axis))).collect();
        made.check()?;
        Ok(made)
    }

    fn tensor(&mut self, tensor: &Tensor, spec: &Spec, example: &BTreeMap<String, i64>) -> Result<Value, String> {
        let shape: Vec<String> = tensor.extents().iter().map(|e| self.axis(e, example)).collect::<Result<_, _>>()?;
        let dtype = dtype(tensor, spec).ok_or_else(|| format!("`{}` has no element type", tensor.name))?;
        Ok(json!({ "shape": shape, "dtype": schema_name(dtype), "description": tensor.summary }))
    }

    /// The axis of an extent; one that is no symbol is added, with what it is equal to.
    fn axis(&mut self, extent: &Extent, example: &BTreeMap<String, i64>) -> Result<String, String> {
        if let Some(symbol) = extent.symbol() {
            return Ok(symbol.to_owned());
        }
        let name = identifier(extent);
        if self.axes.iter().any(|(n, _)| *n == name) {
            return Ok(name);
        }
        let constant = extent.symbols().iter().all(|s| self.op.trace.constants.contains_key(*s));
        let about = json!(extent.to_string());
        self.axes.push(if constant {
            let value =
                extent.value(&mut |s| example.get(s).copied()).ok_or_else(|| format!("`{extent}` has no value"))?;
            (name.clone(), json!({ "type": "const", "value": value, "description": about }))
        } else {
            self.constraints.push(format!("{name} == {}", python(extent)));
            (name.clone(), json!({ "type": "var", "description": about }))
        });
        Ok(name)
    }

    /// Leaves out axes that only optional tensors have, and sees that names are of one thing.
    fn check(&mut self) -> Result<(), String> {
        let tensors = self.inputs.iter().chain(&self.outputs);
        let mut used: BTreeSet<String> = tensors.flat_map(|(_, row)| shape(row)).collect();
        used.extend(self.constraints.iter().flat_map(|c| words(c)).map(str::to_owned));
        self.axes.retain(|(name, _)| used.contains(name));
        let axes: BTreeSet<&String> = self.axes.iter().map(|a| &a.0).collect();
        let mut seen = BTreeSet::new();
        let twice = self.inputs.iter().chain(&self.outputs).map(|t| &t.0).find(|name| !seen.insert(*name));
        let unknown =
            self.inputs.iter().chain(&self.outputs).flat_map(|(_, row)| shape(row)).find(|e| !axes.contains(e));
        match (twice, unknown) {
            (Some(name), _) => Err(format!("`{name}` would be two tensors of a trace definition")),
            (_, Some(extent)) => Err(format!("there is no axis `{extent}` in a trace definition")),
            _ if axes.len() < self.axes.len() => Err("two axes of a trace definition have one name".to_owned()),
            _ => Ok(()),
        }
    }

    fn json(&self, reference: &str) -> String {
        let op = self.op;
        let peers = op.peers.iter().filter(|p| p.name.starts_with("flashinfer.")).map(|p| format!("fi_api:{}", p.name));
        let in_place = op.tensors.iter().filter(|t| t.role == Role::InOut && has(op, t));
        let in_place = in_place.map(|t| format!("inplace:{}", t.name));
        let document = Document {
            name: &self.name,
            description: &op.summary,
            op_type: &op.trace.op_type,
            tags: peers.chain(op.trace.tags.iter().cloned()).chain(in_place).collect(),
            axes: Ordered(&self.axes),
            constraints: &self.constraints,
            inputs: Ordered(&self.inputs),
            outputs: Ordered(&self.outputs),
            reference: self.reference(reference),
        };
        serde_json::to_string_pretty(&document).expect("bug: plain data") + "\n"
    }

    /// The source of the reference; wrapped where the definition's arguments and types are not its own.
    fn reference(&self, source: &str) -> String {
        let is_bytes = |t: &Tensor| t.dtype == Some(DType::U8);
        let known = signature(source).unwrap_or_default();
        let takes = |name: &str| known.iter().any(|(n, _)| n == name);
        let names: Vec<&str> = self.inputs.iter().map(|(name, _)| name.as_str()).collect();
        let elements = self.elements.iter().filter(|(axis, _)| takes(axis));
        let same = known.iter().map(|(name, _)| name.as_str()).eq(names.iter().copied());
        if same && !self.op.tensors.iter().any(|t| t.optional || is_bytes(t)) {
            return source.to_owned();
        }
        let given = names.iter().filter(|name| takes(name)).map(|name| {
            let bytes = self.op.tensors.iter().any(|t| t.name == *name && is_bytes(t));
            format!("{name}={name}{}", if bytes { ".view(torch.uint8)" } else { "" })
        });
        let given = given.chain(elements.map(|(axis, value)| format!("{axis}={value:?}")));
        let absent = known.iter().filter(|(name, default)| !default && !names.contains(&name.as_str()));
        let given = given.chain(absent.map(|(name, _)| format!("{name}=None")));
        let given = given.collect::<Vec<_>>().join(", ");
        let written: Vec<&Tensor> = self.op.tensors.iter().filter(|t| t.role != Role::In).collect();
        let result = |t: &Tensor| format!("{}_{}", t.name, if is_bytes(t) { ".view(torch.int8)" } else { "" });
        let all = written.iter().map(|t| format!("{}_", t.name)).collect::<Vec<_>>().join(", ");
        let kept = written.iter().filter(|t| has(self.op, t)).map(|t| result(t)).collect::<Vec<_>>().join(", ");
        let source = source.replacen("def run(", "def _run(", 1);
        let names = names.join(", ");
        format!("{source}\n\ndef run({names}):\n    {all} = _run({given})\n    return {kept}\n")
    }
}

#[derive(serde::Serialize)]
struct Document<'a> {
    name: &'a str,
    description: &'a str,
    op_type: &'a str,
    tags: Vec<String>,
    axes: Ordered<'a, Value>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    constraints: &'a [String],
    inputs: Ordered<'a, Value>,
    outputs: Ordered<'a, Value>,
    reference: String,
}

/// Whether a definition has a tensor.
fn has(op: &Op, tensor: &Tensor) -> bool {
    !tensor.optional || op.trace.given.contains(&tensor.name)
}

/// The spec that a definition is of: what the example says, and otherwise bf16 if there is a choice.
fn spec(op: &Op, example: &BTreeMap<String, i64>) -> Option<Spec> {
    let fits = |spec: &Spec| {
        op.axes.iter().zip(&spec.axes).all(|(axis, (_, value))| {
            axis.dim.as_ref().is_none_or(|dim| value.parse::<i64>().ok() == example.get(dim).copied())
        })
    };
    let usual = |spec: &Spec| spec.axes.iter().filter(|(_, value)| value == "bf16").count();
    let legal = space::specs(op).filter(|(spec, legal)| legal.is_ok() && fits(spec)).map(|(spec, _)| spec);
    // Of equals the first.
    legal.fold(None, |best: Option<Spec>, spec| match best {
        Some(best) if usual(&best) >= usual(&spec) => Some(best),
        _ => Some(spec),
    })
}

fn dtype(tensor: &Tensor, spec: &Spec) -> Option<DType> {
    tensor.dtype.or_else(|| DType::named(&value(spec, tensor.axis.as_ref()?)))
}

/// The value of an axis.
fn value(spec: &Spec, axis: &str) -> String {
    spec.axes.iter().find(|(name, _)| name == axis).map(|(_, value)| value.clone()).unwrap_or_default()
}

/// The schema's name of an element type. It has none for unsigned bytes.
fn schema_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::F32 => "float32",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "int8",
        DType::Bool => "bool",
        DType::E4m3 => "float8_e4m3fn",
        DType::E5m2 => "float8_e5m2",
    }
}

fn shape(row: &Value) -> Vec<String> {
    let extents = row["shape"].as_array().into_iter().flatten();
    extents.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An extent as a name: `hidden/128` is `hidden_div_128`.
fn identifier(extent: &Extent) -> String {
    match extent {
        Extent::Number(n) => format!("n{n}"),
        Extent::Symbol(name) => name.clone(),
        Extent::Add(a, b) => format!("{}_plus_{}", identifier(a), digits(b)),
        Extent::Multiply(a, b) if matches!(**a, Extent::Number(_)) => format!("{}_times_{}", identifier(b), digits(a)),
        Extent::Multiply(a, b) => format!("{}_times_{}", identifier(a), digits(b)),
        Extent::Divide(a, b) => format!("{}_div_{}", identifier(a), digits(b)),
        Extent::Pad(a, n) => format!("{}_pad_{n}", identifier(a)),
    }
}

/// As [`identifier`], where a number needs no letter before it.
fn digits(extent: &Extent) -> String {
    if let Extent::Number(n) = extent { n.to_string() } else { identifier(extent) }
}

/// An extent in Python; what is rounded up there is spelled with the division that rounds down.
fn python(extent: &Extent) -> String {
    let factor = |e: &Extent| match e {
        Extent::Number(_) | Extent::Symbol(_) => python(e),
        _ => format!("({})", python(e)),
    };
    match extent {
        Extent::Number(n) => n.to_string(),
        Extent::Symbol(name) => name.clone(),
        Extent::Add(a, b) => format!("{} + {}", python(a), python(b)),
        Extent::Multiply(a, b) => format!("{} * {}", factor(a), factor(b)),
        Extent::Divide(a, b) => format!("-(-{} // {})", factor(a), factor(b)),
        Extent::Pad(a, n) => format!("-(-{} // {n}) * {n}", factor(a)),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{parse, tests::GOOD};

    fn made(toml: &str, source: &str) -> Result<BTreeMap<String, String>, String> {
        let op = parse("demo/scale/op.toml", toml).map_err(|e| e.to_string())?;
        check_signature(&op, source)?;
        let example = op.trace.examples[0].clone();
        let definition = Definition::new(&op, &example, source)?;
        Ok(BTreeMap::from([(definition.name.clone(), definition.json(source))]))
    }

    const SOURCE: &str = "import torch\n\n\ndef run(x, factor):\n    return x * factor\n";

    #[test]
    fn a_definition_has_axes_inputs_outputs_and_the_reference() {
        let files = made(GOOD, SOURCE).unwrap();
        let value: Value = serde_json::from_str(&files["scale_n16"]).unwrap();
        assert_eq!(value["axes"]["n"], json!({ "type": "const", "value": 16, "description": "elements" }));
        assert_eq!(value["inputs"]["x"], json!({ "shape": ["n"], "dtype": "float16", "description": "the input" }));
        assert_eq!(value["inputs"]["factor"]["shape"], Value::Null);
        assert_eq!(value["outputs"]["out"]["dtype"], "float16");
        assert_eq!((value["op_type"].as_str(), value["reference"].as_str()), (Some("scale"), Some(SOURCE)));
        assert!(value.get("constraints").is_none());
    }

    #[test]
    fn a_reference_takes_what_is_declared() {
        for (source, says) in [
            ("def run(x):\n    pass\n", "`run` takes (x), and op.toml declares (x, factor)"),
            ("def run(factor, x):\n    pass\n", "takes (factor, x)"),
            ("def run(x, factor, more):\n    pass\n", "takes (x, factor, more)"),
            ("def other(x, factor):\n    pass\n", "no function `run`"),
            ("class A:\n    def run(x, factor):\n        pass\n", "no function `run`"),
        ] {
            let error = made(GOOD, source).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let spread = "def run(\n    x: torch.Tensor,\n    factor=f(1, 2),\n):\n    pass\n";
        assert_eq!(signature(spread).unwrap(), [("x".to_owned(), false), ("factor".to_owned(), true)]);
    }

    #[test]
    fn expressions_become_axes_with_constraints() {
        let with = |extent: &str| {
            let toml = GOOD.replacen(
                "role = \"out\"\naxis = \"dtype\"\nshape = [\"n\"]",
                &format!("role = \"out\"\naxis = \"dtype\"\nshape = [\"{extent}\"]"),
                1,
            );
            let value = made(&toml, SOURCE).map(|f| serde_json::from_str::<Value>(&f["scale_n16"]).unwrap());
            value.unwrap_or_else(|e| panic!("{extent}: {e}"))
        };
        let value = with("n/3");
        assert_eq!(value["axes"]["n_div_3"]["value"], 6);
        assert_eq!(value["outputs"]["out"]["shape"], json!(["n_div_3"]));
        assert_eq!(with("2*n")["axes"]["n_times_2"]["value"], 32);
        let toml = GOOD.replace("constants = { n = \"n\" }", "constants = {}");
        let toml = toml.replacen("dense = 1\n\n[[tensor]]", "dense = 1\n\n[[tensor]]\nname = \"more\"\nsummary = \"m\"\nrole = \"out\"\ndtype = \"f32\"\nshape = [\"pad(n,128)\", \"n+1\", \"1\"]\ndense = 3\n\n[[tensor]]", 1);
        let value: Value = serde_json::from_str(&made(&toml, SOURCE).unwrap()["scale"]).unwrap();
        assert_eq!(value["constraints"], json!(["n_pad_128 == -(-n // 128) * 128", "n_plus_1 == n + 1"]));
        assert_eq!(value["outputs"]["more"]["shape"], json!(["n_pad_128", "n_plus_1", "n1"]));
        assert_eq!(value["axes"]["n1"]["value"], 1);
    }

    #[test]
    fn what_no_input_says_of_the_outputs_is_handed_to_the_reference() {
        let toml = GOOD.replace(
            "axis = \"dtype\"\nshape = [\"n\"]\ndense = 1\n\n[[tensor]]",
            "axis = \"kind\"\nshape = [\"n\", \"many\"]\ndense = 1\n\n[[tensor]]",
        );
        let toml = toml.replace("[[tactic]]", "[[axis]]\nname = \"kind\"\nsummary = \"of out\"\nvalues = [{ value = \"e4m3\", cpp = \"x\" }]\n\n[[tactic]]");
        let toml = toml.replace(
            "[[tensor]]\nname = \"out\"",
            "[[dim]]\nname = \"many\"\nsummary = \"columns\"\nmin = 1\nmax = 9\n\n[[tensor]]\nname = \"out\"",
        );
        let toml =
            toml.replace("n = 16\n", "n = 16\nmany = 3\n").replace("[tolerance]", "[tolerance]\ne4m3 = { ulp = 1.0 }");
        let files = made(&toml, "def run(x, factor, many, kind=\"e4m3\"):\n    return x\n").unwrap();
        let value: Value = serde_json::from_str(&files["scale_n16"]).unwrap();
        assert_eq!(value["inputs"]["many"]["dtype"], "int64");
        assert_eq!(value["outputs"]["out"]["dtype"], "float8_e4m3fn");
        let source = value["reference"].as_str().unwrap();
        assert!(
            source.contains("def run(x, factor, many):\n    out_ = _run(x=x, factor=factor, many=many, kind=\"e4m3\")"),
            "{source}"
        );
    }

    #[test]
    fn bytes_and_optional_tensors_are_seen_to_by_a_wrapper() {
        let toml = GOOD.replace("[[scalar]]", "[[tensor]]\nname = \"codes\"\nsummary = \"c\"\nrole = \"in\"\ndtype = \"u8\"\nshape = [\"n\"]\ndense = 1\n\n[[tensor]]\nname = \"more\"\nsummary = \"m\"\nrole = \"in\"\ndtype = \"f32\"\nshape = [\"n\"]\ndense = 1\noptional = true\n\n[[scalar]]");
        let files = made(&toml, "def run(x, codes, more, factor):\n    pass\n").unwrap();
        assert!(files["scale_n16"].contains("factor=factor, more=None)"), "{}", files["scale_n16"]);
        let all = toml.replace("op_type = ", "given = [\"more\"]\nop_type = ");
        let files = made(&all, "def run(x, codes, more=None, factor=1.0):\n    return x\n").unwrap();
        assert!(files["scale_n16"].contains("def run(x, codes, more, factor):\\n"), "{}", files["scale_n16"]);
        let unknown = made(&toml.replace("op_type = ", "given = [\"x\"]\nop_type = "), SOURCE).unwrap_err();
        assert!(unknown.contains("there is no optional tensor `x`"), "{unknown}");
        let files = made(&toml, "def run(x, codes, more=None, factor=1.0):\n    return x\n").unwrap();
        let value: Value = serde_json::from_str(&files["scale_n16"]).unwrap();
        assert_eq!(value["inputs"]["codes"]["dtype"], "int8");
        assert!(value["inputs"].get("more").is_none());
        let expected = "def _run(x, codes, more=None, factor=1.0):\n    return x\n\n\ndef run(x, codes, factor):\n    out_ = \
                        _run(x=x, codes=codes.view(torch.uint8), factor=factor)\n    return out_\n";
        assert_eq!(value["reference"], expected);
    }
}
