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
        ("values = [128, 256]", "values = [128, 256, 128]", "20:1: tactic `block` needs at least one value, each once"),
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
        ("f16 = { ulp = 1.0 }", "f16 = { ulp = nan }", "59:1: the tolerance of `f16` must be finite and not negative"),
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
    let text = GOOD.replace("{ dtype = [\"f16\"], block", "{ \"é\" = [\"f16\"], blok").replace("n = 16\n", "n = 0\n");
    let expected = "demo/scale/op.toml:23:10: there is no axis or tactic `é`\n\
                    demo/scale/op.toml:23:25: there is no axis or tactic `blok`\n\
                    demo/scale/op.toml:68:1: `n` is out of its range";
    assert_eq!(complaints("demo/scale/op.toml", &text), expected);
}
