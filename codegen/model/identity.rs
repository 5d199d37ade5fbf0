//! Specs and the three identities.
//!
//! | identity | made of | used by |
//! |---|---|---|
//! | `spec_id` | op, axis values, snippet, tactic, semantic options | URI, lock files, coverage, tuner |
//! | `source_key` | `spec_id`, source digest, launch ABI | validity of bundle images |
//! | `build_key` | `source_key`, target, toolchain, spelled options, profile, library version | store entries |

use crate::digest::{Digest, Key, KeyFields};
use crate::op::Op;
use crate::snippet::{BadSnippet, Snippet};
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The number of a spec within its op: mixed radix over the axes, then the tactics, the last one fastest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpecIndex(pub u32);

/// The unit of compilation: an op with a value for each axis and each tactic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The op.
    pub op: String,
    /// Axis → value, in the op's order.
    pub axes: Vec<(String, String)>,
    /// Tactic → value, in the op's order.
    pub tactic: Vec<(String, u32)>,
    /// The caller's source, if the value of an axis is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<Box<Snippet>>,
    /// The identity that survives edits.
    pub spec_id: Digest,
    /// Readable name: `rmsnorm-bf16-b1024-3fa29c01d7e4`.
    pub uri: String,
}

impl Spec {
    /// The spec with that number.
    ///
    /// # Panics
    /// If the number is not below [`crate::space::size`].
    #[must_use]
    pub fn at(op: &Op, index: SpecIndex) -> Self {
        let mut rest = index.0 as usize;
        let mut digits = Vec::new();
        let radices = op.axes.iter().map(|a| a.values.len()).chain(op.tactics.iter().map(|t| t.values.len()));
        for radix in radices.collect::<Vec<_>>().into_iter().rev() {
            digits.push(rest % radix);
            rest /= radix;
        }
        assert_eq!(rest, 0, "bug: spec number {} of `{}` is out of range", index.0, op.name);
        digits.reverse();
        let (axis_digits, tactic_digits) = digits.split_at(op.axes.len());
        let axes = op.axes.iter().zip(axis_digits).map(|(a, &i)| (a.name.clone(), a.values[i].value.clone()));
        let tactic = op.tactics.iter().zip(tactic_digits).map(|(t, &i)| (t.name.clone(), t.values[i]));
        Self::new(op, axes.collect(), tactic.collect(), None)
    }

    /// This spec with a snippet instead of the value of the axis that is open to one.
    ///
    /// # Errors
    /// Why the op cannot take it.
    pub fn with_snippet(self, op: &Op, snippet: Snippet) -> Result<Self, BadSnippet> {
        let open = snippet.check(op)?;
        let mut axes = self.axes;
        axes.iter_mut().filter(|(name, _)| *name == open.name).for_each(|(_, value)| *value = snippet.value());
        Ok(Self::new(op, axes, self.tactic, Some(Box::new(snippet))))
    }

    /// The number of the spec with these values, which must be legal ones in the op's order. Beyond the values of an axis
    /// that is open come snippets: each has a space of numbers of its own, behind that of all values.
    #[must_use]
    pub fn index(op: &Op, axes: &[usize], tactic: &[usize]) -> SpecIndex {
        let axes = op.axes.iter().zip(axes).map(|(a, &i)| (a.values.len(), i));
        let tactic = op.tactics.iter().zip(tactic).map(|(t, &i)| (t.values.len(), i));
        let (number, size, snippet) = axes.chain(tactic).fold((0, 1, 0), |(number, size, snippet), (radix, i)| {
            let (i, beyond) = if i < radix { (i, snippet) } else { (0, i - radix + 1) };
            (number * radix + i, size * radix, beyond)
        });
        SpecIndex((number + size * snippet) as u32)
    }

    /// The number of the spec with the first value instead of a snippet, and which snippet it is, from 0.
    #[must_use]
    pub fn parts(op: &Op, index: SpecIndex) -> (SpecIndex, Option<usize>) {
        let size = crate::space::size(op);
        let number = index.0 as usize;
        (SpecIndex((number % size) as u32), (number / size).checked_sub(1))
    }

    fn new(op: &Op, axes: Vec<(String, String)>, tactic: Vec<(String, u32)>, snippet: Option<Box<Snippet>>) -> Self {
        let spec_id = Self::id_fields(op, &axes, &tactic, snippet.as_deref()).finish().digest;
        let mut uri = op.name.clone();
        for (axis, (_, value)) in op.axes.iter().zip(&axes) {
            uri += &format!("-{}{value}", axis.prefix);
        }
        for (tactic, (_, value)) in op.tactics.iter().zip(&tactic) {
            uri += &format!("-{}{value}", tactic.prefix);
        }
        uri += &format!("-{}", spec_id.short(12));
        Self { op: op.name.clone(), axes, tactic, snippet, spec_id, uri }
    }

    fn id_fields(op: &Op, axes: &[(String, String)], tactic: &[(String, u32)], snippet: Option<&Snippet>) -> KeyFields {
        let mut key = KeyFields::new("parbake.spec.v1").with("op", &op.name);
        for (name, value) in axes {
            key = key.with(format!("axis.{name}"), value);
        }
        if let Some(snippet) = snippet {
            key = key.with("snippet", snippet.digest());
        }
        for (name, value) in tactic {
            key = key.with(format!("tactic.{name}"), value);
        }
        for (name, value) in op.options.fields() {
            key = key.with(format!("option.{name}"), value);
        }
        key
    }

    /// The printable fields behind `spec_id`.
    #[must_use]
    pub fn id_key(&self, op: &Op) -> Key {
        Self::id_fields(op, &self.axes, &self.tactic, self.snippet.as_deref()).finish()
    }

    /// The kernel's `extern "C"` name: the URI with `_` for `-`, so that profilers show what was launched.
    #[must_use]
    pub fn entry(&self) -> String {
        self.uri.replace('-', "_")
    }

    /// The value of an axis.
    #[must_use]
    pub fn axis(&self, name: &str) -> Option<&str> {
        self.axes.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The value of a tactic.
    #[must_use]
    pub fn tactic(&self, name: &str) -> Option<u32> {
        self.tactic.iter().find(|(n, _)| n == name).map(|&(_, v)| v)
    }

    /// What the template sees. Never the target. Canonical JSON of it enters the source key.
    #[must_use]
    pub fn context(&self, op: &Op) -> RenderContext {
        let cpp = |axis: &crate::op::Axis, value: &str| match (&self.snippet, &axis.open) {
            (Some(snippet), Some(open)) => {
                ContextAxis { value: value.to_owned(), cpp: open.cpp.clone(), snippet: Some(snippet.context(open)) }
            }
            _ => {
                let found = axis.values.iter().find(|v| v.value == value);
                let cpp = found.map_or_else(|| value.to_owned(), |v| v.cpp.clone());
                ContextAxis { value: value.to_owned(), cpp, snippet: None }
            }
        };
        RenderContext {
            op: op.name.clone(),
            entry: self.entry(),
            axes: op.axes.iter().zip(&self.axes).map(|(a, (n, v))| (n.clone(), cpp(a, v))).collect(),
            tactic: self.tactic.iter().cloned().collect(),
        }
    }

    /// The identity of what is compiled: this spec, from these sources, for launchers of this ABI.
    #[must_use]
    pub fn source_key(&self, op: &Op, sources: Digest) -> Key {
        let context = serde_json::to_string(&self.context(op)).expect("bug: a render context is plain data");
        KeyFields::new("parbake.source.v1")
            .with("spec_id", self.spec_id)
            .with("sources", sources)
            .with("context", context)
            .with("launch_abi", crate::LAUNCH_ABI)
            .finish()
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.op)?;
        self.axes.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))?;
        self.tactic.iter().try_for_each(|(n, v)| write!(f, " {n}={v}"))
    }
}

/// What a template sees.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RenderContext {
    /// The op's name.
    pub op: String,
    /// The kernel's `extern "C"` name.
    pub entry: String,
    /// `axes.dtype.value`, `axes.dtype.cpp`.
    pub axes: BTreeMap<String, ContextAxis>,
    /// `tactic.block`.
    pub tactic: BTreeMap<String, u32>,
}

/// An axis value in a template.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContextAxis {
    /// As users type it.
    pub value: String,
    /// As C++ spells it.
    pub cpp: String,
    /// The caller's source, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snippet: Option<ContextSnippet>,
}

/// A snippet in a template.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContextSnippet {
    /// Its parameters, in the order of their values.
    pub params: Vec<ContextParameter>,
    /// Every function that the op declares → its body.
    pub functions: BTreeMap<String, String>,
}

/// A parameter of a snippet in a template.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContextParameter {
    /// Its name.
    pub name: String,
    /// Its type, as C++ spells it.
    pub cpp: String,
}

/// Which kind of build an artifact is. None replaces another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Optimised, nothing else.
    #[default]
    Release,
    /// Release with source lines for profilers.
    Lineinfo,
    /// For a device debugger.
    Debug,
}

impl Profile {
    /// Whether an artifact of another profile serves where this one is asked for: line tables change no instruction,
    /// so they may serve a normal call; a debug build serves whoever asks for one.
    #[must_use]
    pub fn is_served_by(self, other: Self) -> bool {
        self == other || (self, other) == (Self::Release, Self::Lineinfo)
    }
}

impl std::str::FromStr for Profile {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Release, Self::Lineinfo, Self::Debug].into_iter().find(|p| p.to_string() == text).ok_or(())
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Release => "release",
            Self::Lineinfo => "lineinfo",
            Self::Debug => "debug",
        })
    }
}

/// The identity of one artifact's bytes, as this version of the library makes them.
#[must_use]
pub fn build_key(source_key: Digest, target: Target, toolchain: &str, options: &[String], profile: Profile) -> Key {
    build_key_by(source_key, target, toolchain, options, profile, crate::VERSION)
}

/// The identity of one artifact's bytes, made by that version of the library.
#[must_use]
pub fn build_key_by(
    source_key: Digest,
    target: Target,
    toolchain: &str,
    options: &[String],
    profile: Profile,
    library: &str,
) -> Key {
    let mut key = KeyFields::new("parbake.build.v1")
        .with("source_key", source_key)
        .with("target", target)
        .with("toolchain", toolchain)
        .with("profile", profile)
        .with("library", library);
    for option in options {
        key = key.with("option", option);
    }
    key.finish()
}
