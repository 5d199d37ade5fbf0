//! The Python functions of an op: one for each peer that says how it is called, and one of the op's own name.

use crate::op::{Op, Peer, Role, Scalar, Tensor};

/// Words that Python keeps for itself.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// What the package `parbake` calls by these names itself.
pub const TAKEN: [&str; 9] = [
    "Coverage",
    "Error",
    "Explanation",
    "NotCoveredError",
    "Prepared",
    "explain",
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
    /// The output that it returns, and allocates if it is not given one.
    pub returns: Option<&'a Tensor>,
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
    /// Accepted for the sake of the peer's callers; why it has no effect.
    Ignored(&'a str),
}

impl Function<'_> {
    /// Whether an argument may be left out.
    #[must_use]
    pub fn is_optional(&self, parameter: &Parameter<'_>) -> bool {
        match parameter.kind {
            Kind::Tensor(t) => self.returns.is_some_and(|r| r.name == t.name),
            Kind::Scalar(s) => s.default.is_some(),
            Kind::Ignored(_) => true,
        }
    }
    /// What the caller names a tensor or scalar of the op; nothing if it is fixed or left at its default.
    #[must_use]
    pub fn argument(&self, declared: &str) -> Option<&str> {
        let is = |p: &&Parameter<'_>| match p.kind {
            Kind::Tensor(t) => t.name == declared,
            Kind::Scalar(s) => s.name == declared,
            Kind::Ignored(_) => false,
        };
        self.parameters.iter().find(is).map(|p| p.name.as_str())
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
        self.tensors.iter().filter(|t| t.role != Role::Out).find(same)
    }

    /// All public functions: those of peers in their order, then that of the op's own name if no peer bears it.
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
            let declared = a.is.as_ref().unwrap_or(&a.name);
            let tensor = || self.tensors.iter().find(|t| &t.name == declared).map(Kind::Tensor);
            let scalar = || self.scalars.iter().find(|s| &s.name == declared).map(Kind::Scalar);
            let kind = a.ignored.as_ref().map(|why| Kind::Ignored(why)).or_else(tensor).or_else(scalar)?;
            Some(Parameter { name: a.name.clone(), kind })
        };
        let mut function = Function {
            name: peer.function().to_owned(),
            peer: Some(peer),
            parameters: peer.arguments.iter().filter_map(parameter).collect(),
            returns: None,
        };
        let returned = function.parameters.iter().find(|p| Some(&p.name) == peer.returns.as_ref());
        function.returns = returned.and_then(|p| if let Kind::Tensor(t) = p.kind { Some(t) } else { None });
        function
    }

    /// Inputs, scalars and one output that may be left out; or, if it has several outputs or one that no input looks
    /// like, all tensors as declared and then the scalars.
    fn own(&self) -> Function<'_> {
        let outputs: Vec<_> = self.tensors.iter().filter(|t| t.role == Role::Out).collect();
        let returns = match outputs[..] {
            [output] => self.like(output).map(|_| output),
            _ => None,
        };
        let given = self.tensors.iter().filter(|t| returns.is_none_or(|r| r.name != t.name)).map(Kind::Tensor);
        let (optional, required): (Vec<_>, Vec<_>) = self.scalars.iter().partition(|s| s.default.is_some());
        let scalars = required.into_iter().chain(optional).map(Kind::Scalar);
        let named = |kind| match kind {
            Kind::Tensor(t) => Parameter { name: t.name.clone(), kind },
            Kind::Scalar(s) => Parameter { name: s.name.clone(), kind },
            Kind::Ignored(_) => unreachable!("bug: an op ignores none of its arguments"),
        };
        let parameters = given.chain(scalars).chain(returns.map(Kind::Tensor)).map(named).collect();
        Function { name: self.name.clone(), peer: None, parameters, returns }
    }
}
