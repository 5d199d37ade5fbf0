//! Snippets: a caller's own source as the value of an axis that is open to it. A snippet is the bodies of a few functions
//! that the op declares, and the names and types of what they are given at each call.
//!
//! Its identity is made of its name, its parameters and the exact text of its functions, so the same snippet is one kernel
//! wherever it is written. Parameters are sorted by name: in which order they are declared means nothing.

use crate::digest::{Digest, KeyFields};
use crate::identity::{ContextParameter, ContextSnippet};
use crate::op::{Axis, Op, Open};
use crate::report::{Class, Report};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The most parameters of a snippet.
pub const MAX_PARAMS: usize = 8;
/// The longest name.
pub const MAX_NAME: usize = 32;
/// The longest text of all its functions together.
pub const MAX_CODE: usize = 16 << 10;

/// Names that the functions have anyway.
const TAKEN: [&str; 3] = ["x", "at", "user"];

/// The line that stands behind a body, until whoever renders the unit knows its number there.
pub const RESUME: &str = "#line resume";

/// A caller's own source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snippet {
    /// What URIs and errors call it.
    pub name: String,
    /// Parameter → type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, ParamType>,
    /// Function → its body, in CUDA C++. One that is missing is what the op declares.
    pub functions: BTreeMap<String, String>,
}

/// The type of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ParamType {
    /// A number.
    #[serde(rename = "f32")]
    F32,
    /// A whole number.
    #[serde(rename = "i32")]
    I32,
    /// A tensor.
    #[serde(rename = "f32*")]
    F32s,
    /// A tensor of whole numbers.
    #[serde(rename = "i32*")]
    I32s,
}

impl ParamType {
    /// As C++ spells it.
    #[must_use]
    pub fn cpp(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::I32 => "int",
            Self::F32s => "const float*",
            Self::I32s => "const int*",
        }
    }
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::F32s => "f32*",
            Self::I32s => "i32*",
        })
    }
}

/// A snippet that an op cannot take.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("snippet `{name}` for `{op}` cannot be used")]
pub struct BadSnippet {
    /// Its name.
    pub name: String,
    /// The op.
    pub op: String,
    /// Everything that is wrong: what of it, what was expected, what came.
    pub wrong: Vec<(String, String, String)>,
}

impl BadSnippet {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::new("PB-2040", Class::Usage, self.to_string());
        for (what, expected, got) in &self.wrong {
            report = report.with(what, format!("expected {expected}, got {got}"));
        }
        report.help(format!(
            "`parbake ops {}` shows which functions an axis takes; docs/attention.md has an example",
            self.op
        ))
    }
}

impl Snippet {
    /// Reads a snippet for an op, and checks it.
    ///
    /// # Errors
    /// A text that is none, or everything that the op cannot take.
    pub fn read(op: &Op, json: &str) -> Result<Self, BadSnippet> {
        serde_json::from_str::<Self>(json)
            .map_err(|e| {
                let name = serde_json::from_str::<serde_json::Value>(json).ok();
                let name = name.and_then(|v| Some(v.get("name")?.as_str()?.to_owned())).unwrap_or_default();
                let wrong = vec![("text".to_owned(), "name, params and functions".to_owned(), e.to_string())];
                BadSnippet { name, op: op.name.clone(), wrong }
            })
            .and_then(|snippet| snippet.check(op).map(|_| snippet))
    }

    /// What makes it the snippet that it is.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut key = KeyFields::new("parbake.snippet.v1").with("name", &self.name);
        for (name, kind) in &self.params {
            key = key.with(format!("param.{name}"), kind);
        }
        for (name, body) in &self.functions {
            key = key.with(format!("function.{name}"), body);
        }
        key.finish().digest
    }

    /// The value of the axis: `soft_cap_3fa29c01d7e4`. The identity of a spec has the whole digest beside it.
    #[must_use]
    pub fn value(&self) -> String {
        format!("{}_{}", self.name, self.digest().short(12))
    }

    /// Whether an op takes it, and for which axis.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn check<'a>(&self, op: &'a Op) -> Result<&'a Axis, BadSnippet> {
        let mut wrong = Vec::new();
        let mut add = |what: String, expected: String, got: String| wrong.push((what, expected, got));
        let name = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_lowercase())
                && text.len() <= MAX_NAME
                && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
        };
        let named = || format!("lower-case letters, digits and `_`, at most {MAX_NAME}");
        if !name(&self.name) {
            add("name".into(), named(), format!("`{}`", self.name));
        }
        if self.params.len() > MAX_PARAMS {
            let all = self.params.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            add("params".into(), format!("at most {MAX_PARAMS}"), format!("{}: {all}", self.params.len()));
        }
        for param in self.params.keys().filter(|p| !name(p) || TAKEN.contains(&p.as_str())) {
            add("params".into(), format!("{}, and none of {}", named(), TAKEN.join(", ")), format!("`{param}`"));
        }
        let size: usize = self.functions.values().map(String::len).sum();
        if size > MAX_CODE {
            add("functions".into(), format!("at most {MAX_CODE} bytes"), format!("{size} bytes"));
        }
        let axis = op.axes.iter().find_map(|axis| Some((axis, axis.open.as_ref()?)));
        let declared = axis.map(|(_, open)| open.functions.keys().map(String::as_str).collect()).unwrap_or_default();
        let declared: Vec<&str> = declared;
        if axis.is_none() {
            add("op".into(), "an op with an axis that is open to snippets".into(), format!("`{}`", op.name));
        } else if self.functions.is_empty() {
            add("functions".into(), format!("at least one of {}", declared.join(", ")), "none".into());
        }
        for (function, body) in &self.functions {
            if axis.is_some() && !declared.contains(&function.as_str()) {
                add("functions".into(), declared.join(" or "), format!("`{function}`"));
            }
            if let Some((line, what)) = barred(body) {
                add(format!("{function}, line {line}"), "C++ without directives".into(), format!("`{what}`"));
            }
        }
        match axis {
            Some((axis, _)) if wrong.is_empty() => Ok(axis),
            _ => Err(BadSnippet { name: self.name.clone(), op: op.name.clone(), wrong }),
        }
    }

    /// What the template of an op sees of it.
    pub(crate) fn context(&self, open: &Open) -> ContextSnippet {
        let params =
            self.params.iter().map(|(name, kind)| ContextParameter { name: name.clone(), cpp: kind.cpp().into() });
        let body = |(name, default): (&String, &String)| {
            let body = self.functions.get(name).map_or_else(
                || default.clone(),
                |body| format!("\n#line 1 \"{}.{name}\"\n{}\n{RESUME}\n", self.name, body.trim_end_matches('\n')),
            );
            (name.clone(), body)
        };
        ContextSnippet { params: params.collect(), functions: open.functions.iter().map(body).collect() }
    }
}

/// What would make the unit depend on more than the snippet says, or hide what stands behind it, and on which line.
fn barred(body: &str) -> Option<(usize, &'static str)> {
    const BARRED: [&str; 7] = ["#", "%:", "??=", "__DATE__", "__TIME__", "__TIMESTAMP__", "_Pragma"];
    body.lines().enumerate().find_map(|(i, line)| {
        let found = BARRED.into_iter().find(|what| line.contains(what));
        let found = found.or(line.contains('\0').then_some("\\0"));
        Some((i + 1, found.or(line.trim_end().ends_with('\\').then_some("\\ at the end of a line"))?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snippet(params: &[(&str, ParamType)], code: &str) -> Snippet {
        Snippet {
            name: "own".into(),
            params: params.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect(),
            functions: [("score".to_owned(), code.to_owned())].into(),
        }
    }

    #[test]
    fn every_character_and_every_type_counts_and_the_order_of_parameters_does_not() {
        use ParamType::{F32, F32s, I32};
        let base = snippet(&[("a", F32), ("b", F32s)], "return x * a;");
        assert_eq!(base.digest(), snippet(&[("b", F32s), ("a", F32)], "return x * a;").digest());
        let others = [
            snippet(&[("a", F32), ("b", F32s)], "return x *  a;"),
            snippet(&[("a", I32), ("b", F32s)], "return x * a;"),
            snippet(&[("a", F32), ("c", F32s)], "return x * a;"),
            snippet(&[("a", F32)], "return x * a;"),
            Snippet { name: "other".into(), ..base.clone() },
            Snippet { functions: [("sees".to_owned(), "return x * a;".to_owned())].into(), ..base.clone() },
        ];
        for other in others {
            assert_ne!(other.digest(), base.digest(), "{other:?}");
        }
        let json = serde_json::to_string(&base).unwrap();
        assert_eq!(serde_json::from_str::<Snippet>(&json).unwrap(), base);
        assert!(json.contains(r#""b":"f32*""#), "{json}");
        assert_eq!(base.value(), format!("own_{}", &base.digest().to_string()[..12]));
    }

    #[test]
    fn what_reaches_beyond_the_snippet_is_barred() {
        assert_eq!(barred("return x;\n  /**/ #include <a>"), Some((2, "#")));
        assert_eq!(barred("%:define x"), Some((1, "%:")));
        assert_eq!(barred("return __TIME__[0];"), Some((1, "__TIME__")));
        assert_eq!(barred("\n\nreturn x; // on \\  "), Some((3, "\\ at the end of a line")));
        assert_eq!(barred("return x % 2 ? x : -x; // 100 %"), None);
    }
}
