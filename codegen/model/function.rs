//! The Python functions of an op: one for each peer that says how it is called, and one of the op's own name.

use crate::extent::Extent;
use crate::op::{Axis, Constant, Dim, Op, Peer, Role, Scalar, Tensor};
use std::collections::BTreeSet;

/// Words that Python keeps for itself.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// What is written by hand for a family, in `parbake._attention` and so on: attributes of the package and of the family's
/// module too.
pub const WRITTEN: [(&str, &[&str]); 2] = [
    (
        "attention",
        &[
            "BatchAttention",
            "BatchAttentionWithAttentionSinkWrapper",
            "BatchDecodeWithPagedKVCacheWrapper",
            "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
            "BatchMLAPagedAttentionWrapper",
            "BatchPrefillWithPagedKVCacheWrapper",
            "BatchPrefillWithRaggedKVCacheWrapper",
            "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
            "BlockSparseAttentionWrapper",
            "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
            "MultiLevelCascadeAttentionWrapper",
            "VariableBlockSparseAttentionWrapper",
            "attention_workspace_size",
            "single_decode_with_kv_cache",
            "single_prefill_with_kv_cache",
            "single_prefill_with_kv_cache_return_lse",
        ],
    ),
    (
        "gemm",
        &[
            "SegmentGEMMWrapper",
            "batch_deepgemm_fp8_nt_groupwise",
            "bmm_bf16",
            "bmm_fp8",
            "fp8_blockscale_gemm_sm90",
            "gemm_fp8_nt_blockscaled",
            "gemm_fp8_nt_groupwise",
            "group_deepgemm_fp8_nt_groupwise",
            "group_gemm_fp8_nt_groupwise",
            "grouped_mm_bf16",
            "grouped_mm_fp8",
            "mm",
            "mm_bf16",
        ],
    ),
];

/// What the package `parbake` calls by these names itself.
pub const TAKEN: [&str; 11] = [
    "Coverage",
    "Error",
    "Explanation",
    "NotCoveredError",
    "Prepared",
    "comm",
    "explain",
    "fused_moe",
    "prepare",
    "set_log_level",
    "supports",
];

/// Keyword-only argument of every function: where it runs.
pub const TARGET: &str = "target";

/// Whether Python takes it as the name of a function or an argument.
#[must_use]
pub fn is_identifier(text: &str) -> bool {
    !KEYWORDS.contains(&text)
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// A public function.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Its name: `gemma_rmsnorm`.
    pub name: String,
    /// The function of another library that it equals.
    pub peer: Option<&'a Peer>,
    /// Its arguments, in order; those with a default come last.
    pub parameters: Vec<Parameter<'a>>,
    /// The outputs that it allocates if it is not given them, and returns, in the op's order. Those that are no
    /// arguments are always allocated.
    pub outputs: Vec<&'a Tensor>,
}

/// An argument.
#[derive(Clone, Debug)]
pub struct Parameter<'a> {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind<'a>,
}

/// What an argument is.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// A tensor of the op.
    Tensor(&'a Tensor),
    /// A scalar of the op.
    Scalar(&'a Scalar),
    /// A scalar that chooses a value of an axis: it is given by the value's name, or by its number.
    Choice(&'a Scalar, &'a Axis),
    /// An extent of outputs that no input has.
    Extent(&'a Dim),
    /// An element type of outputs that no input has.
    Element(&'a Axis),
    /// Accepted for the sake of the peer's callers; why it has no effect.
    Ignored(&'a str),
}

impl Kind<'_> {
    /// The op's own name of it.
    #[must_use]
    pub fn declared(&self) -> Option<&str> {
        match self {
            Self::Tensor(Tensor { name, .. })
            | Self::Scalar(Scalar { name, .. })
            | Self::Choice(Scalar { name, .. }, _)
            | Self::Extent(Dim { name, .. })
            | Self::Element(Axis { name, .. }) => Some(name),
            Self::Ignored(_) => None,
        }
    }
}

impl Function<'_> {
    /// Whether an argument may be left out.
    #[must_use]
    pub fn is_optional(&self, parameter: &Parameter<'_>) -> bool {
        match parameter.kind {
            Kind::Tensor(t) => t.optional || self.allocates(t),
            Kind::Scalar(s) | Kind::Choice(s, _) => s.default.is_some(),
            // Known from an output that is given, or from an input that may be absent.
            Kind::Extent(d) => {
                let says = |t: &Tensor| t.role != Role::Out && bound(t).contains(&d.name);
                !self.hidden().any(|t| symbols(t).contains(&d.name))
                    || self.parameters.iter().any(|p| matches!(p.kind, Kind::Tensor(t) if says(t)))
            }
            Kind::Element(_) | Kind::Ignored(_) => true,
        }
    }
    /// Whether it allocates an output that it is not given.
    #[must_use]
    pub fn allocates(&self, tensor: &Tensor) -> bool {
        self.outputs.iter().any(|o| o.name == tensor.name)
    }
    /// The outputs that it cannot be given.
    pub fn hidden(&self) -> impl Iterator<Item = &Tensor> {
        self.outputs.iter().copied().filter(|o| self.argument(&o.name).is_none())
    }
    /// What the caller names a tensor, a scalar, an extent or an element type of the op; nothing if it is fixed or left
    /// at its default.
    #[must_use]
    pub fn argument(&self, declared: &str) -> Option<&str> {
        self.parameters.iter().find(|p| p.kind.declared() == Some(declared)).map(|p| p.name.as_str())
    }
}

impl Peer {
    /// The last part of its name.
    #[must_use]
    pub fn function(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}

impl Op {
    /// The input that has the shape and the element type of an output, so that one can be allocated after the other.
    #[must_use]
    pub fn like(&self, output: &Tensor) -> Option<&Tensor> {
        let same = |t: &&Tensor| t.shape == output.shape && t.axis == output.axis && t.dtype == output.dtype;
        self.given().find(same)
    }

    /// The tensors that every call has and reads.
    pub fn given(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| t.role != Role::Out && !t.optional)
    }

    /// The axis whose values a scalar chooses.
    #[must_use]
    pub fn choice(&self, scalar: &Scalar) -> Option<&Axis> {
        self.axes.iter().find(|a| a.scalar.as_ref() == Some(&scalar.name))
    }

    /// The number of a scalar that a peer fixes.
    #[must_use]
    pub fn number(&self, scalar: &Scalar, constant: &Constant) -> Option<f64> {
        match constant {
            Constant::Number(n) => Some(*n),
            Constant::Name(name) => {
                let values = &self.choice(scalar)?.values;
                values.iter().position(|v| &v.value == name).map(|place| place as f64)
            }
        }
    }

    /// Extents of these outputs that no input always says.
    #[must_use]
    pub fn open_extents(&self, outputs: &[&Tensor]) -> Vec<&Dim> {
        let bound: BTreeSet<_> = self.given().flat_map(bound).collect();
        let needed: BTreeSet<_> = outputs.iter().flat_map(|t| symbols(t)).collect();
        self.dims.iter().filter(|d| needed.contains(&d.name) && !bound.contains(&d.name)).collect()
    }

    /// Element types of these outputs that no input always has.
    #[must_use]
    pub fn open_elements(&self, outputs: &[&Tensor]) -> Vec<&Axis> {
        let open = |a: &&Axis| {
            let is = |t: &Tensor| t.axis.as_ref() == Some(&a.name);
            outputs.iter().any(|t| is(t)) && !self.given().any(is)
        };
        self.axes.iter().filter(open).collect()
    }

    /// All public functions: those of peers in their order, then that of the op's own name if no peer bears it. Where
    /// `api.py` has a function of that name, it calls ours, which begins with `_`.
    #[must_use]
    pub fn functions(&self) -> Vec<Function<'_>> {
        let mut functions: Vec<_> =
            self.peers.iter().filter(|p| !p.arguments.is_empty()).map(|p| self.as_peer(p)).collect();
        if functions.iter().all(|f| f.name != self.name) {
            functions.push(self.own());
        }
        functions
    }

    fn as_peer<'a>(&'a self, peer: &'a Peer) -> Function<'a> {
        let parameter = |a: &'a crate::op::Argument| {
            let kind = match &a.ignored {
                Some(why) => Kind::Ignored(why),
                None => self.kind(a.is.as_ref().unwrap_or(&a.name))?,
            };
            Some(Parameter { name: a.name.clone(), kind })
        };
        let parameters: Vec<_> = peer.arguments.iter().filter_map(parameter).collect();
        let outputs = self.tensors.iter().filter(|t| t.role == Role::Out);
        // What is left out and optional does not exist.
        let returned = |t: &&Tensor| match parameters.iter().find(|p| p.kind.declared() == Some(&t.name)) {
            Some(p) => peer.returns.contains(&p.name),
            None => !t.optional,
        };
        let outputs = outputs.filter(returned).collect();
        Function { name: peer.function().to_owned(), peer: Some(peer), parameters, outputs }
    }

    /// What a name of the op is as an argument.
    #[must_use]
    pub fn kind(&self, declared: &str) -> Option<Kind<'_>> {
        let tensor = || self.tensors.iter().find(|t| t.name == declared).map(Kind::Tensor);
        let scalar = || {
            let scalar = self.scalars.iter().find(|s| s.name == declared)?;
            Some(self.choice(scalar).map_or(Kind::Scalar(scalar), |axis| Kind::Choice(scalar, axis)))
        };
        let outputs: Vec<_> = self.tensors.iter().filter(|t| t.role == Role::Out).collect();
        let extent = || self.open_extents(&outputs).into_iter().find(|d| d.name == declared).map(Kind::Extent);
        let element = || self.open_elements(&outputs).into_iter().find(|a| a.name == declared).map(Kind::Element);
        tensor().or_else(scalar).or_else(extent).or_else(element)
    }

    /// Inputs, scalars, and what may be left out: inputs that may be absent, scalars with a default, outputs, their
    /// extents and their element types. Without an input that every call has there is nothing to allocate outputs after.
    fn own(&self) -> Function<'_> {
        let outputs: Vec<_> = if self.given().next().is_some() {
            self.tensors.iter().filter(|t| t.role == Role::Out).collect()
        } else {
            Vec::new()
        };
        let allocated = |t: &Tensor| outputs.iter().any(|o| o.name == t.name);
        let given = self.tensors.iter().filter(|t| !allocated(t) && !t.optional).map(|t| &t.name);
        let absent = self.tensors.iter().filter(|t| !allocated(t) && t.optional).map(|t| &t.name);
        let (optional, required): (Vec<_>, Vec<_>) = self.scalars.iter().partition(|s| s.default.is_some());
        let names = given
            .chain(required.into_iter().map(|s| &s.name))
            .chain(absent)
            .chain(optional.into_iter().map(|s| &s.name))
            .chain(outputs.iter().map(|t| &t.name))
            .chain(self.open_extents(&outputs).into_iter().map(|d| &d.name))
            .chain(self.open_elements(&outputs).into_iter().map(|a| &a.name));
        let named = |name: &String| Some(Parameter { name: name.clone(), kind: self.kind(name)? });
        let parameters = names.filter_map(named).collect();
        let private = if self.api.contains(&self.name) { "_" } else { "" };
        Function { name: format!("{private}{}", self.name), peer: None, parameters, outputs }
    }
}

/// The extents of a tensor, without those that are no expressions: a definition is checked with these as well.
fn extents(tensor: &Tensor) -> impl Iterator<Item = Extent> {
    tensor.shape.iter().filter_map(|e| Extent::parse(e).ok())
}

/// The symbols of a tensor's shape.
fn symbols(tensor: &Tensor) -> Vec<String> {
    extents(tensor).flat_map(|e| e.symbols().into_iter().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The symbols that follow from a tensor's shape.
fn bound(tensor: &Tensor) -> Vec<String> {
    extents(tensor).filter_map(|e| e.binds().map(|b| b.symbol.to_owned())).collect()
}
