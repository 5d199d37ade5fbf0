//! Snippets in this process. Each that a caller gives for an op gets a number, which the scalar of the op's open axis takes
//! like those of the axis' values; what its parameters are comes with each call.

use crate::check::Wrong;
use crate::error::Error;
use crate::library::{Library, OpId};
use crate::tensor::Tensor;
use parbake_model::dtype::DType;
use parbake_model::identity::{Spec, SpecIndex};
use parbake_model::op::{Axis, Op, Role};
use parbake_model::snippet::{MAX_PARAMS, ParamType, Snippet};
use std::sync::{Arc, PoisonError, RwLock};

/// The most snippets of a process: each is kernels that stay loaded.
pub const MAX_SNIPPETS: usize = 4096;

/// What a parameter of a snippet is given.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// For `f32` and `i32`.
    Number(f64),
    /// For `f32*` and `i32*`: of any shape, dense, and read.
    Tensor(Tensor),
}

/// Those of a library, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Snippets(RwLock<Vec<(OpId, Arc<Snippet>)>>);

impl Snippets {
    fn get(&self, op: OpId, place: usize) -> Option<Arc<Snippet>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(place).filter(|(of, _)| *of == op).map(|(_, snippet)| snippet.clone())
    }

    /// The place of one; a new one if it is not there.
    fn place(&self, op: OpId, snippet: &Snippet) -> Option<usize> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|(of, known)| *of == op && **known == *snippet);
        found.or_else(|| {
            all.push((op, Arc::new(snippet.clone())));
            (all.len() <= MAX_SNIPPETS).then(|| all.len() - 1).or_else(|| all.pop().and(None))
        })
    }

    /// The one that is called so as the value of an axis.
    fn named(&self, op: OpId, value: &str) -> Option<Arc<Snippet>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(of, snippet)| *of == op && snippet.value() == value).map(|(_, snippet)| snippet.clone())
    }
}

impl Library {
    /// The number of a snippet: the value of the scalar that chooses the axis' value, `score` of batch_attention. The same
    /// snippet has the same number in this process; across processes its identity tells it.
    ///
    /// # Errors
    /// What the op cannot take of it, or more snippets than a process may have.
    pub fn snippet(&self, op: OpId, snippet: &Snippet) -> Result<i32, Error> {
        let def = self.definition(op);
        let axis = snippet.check(def).map_err(Error::Snippet)?;
        Ok((axis.values.len() + self.snippet_place(op, snippet)?) as i32)
    }

    fn snippet_place(&self, op: OpId, snippet: &Snippet) -> Result<usize, Error> {
        self.snippets.place(op, snippet).ok_or_else(|| Error::UnknownValue {
            op: self.definition(op).name.clone(),
            what: format!("there is no room for snippet `{}`", snippet.name),
            expected: format!("at most {MAX_SNIPPETS} snippets in a process"),
            got: "one more; what differs between calls is a parameter".into(),
        })
    }

    /// The spec with this number.
    pub(crate) fn spec_at(&self, op: OpId, index: SpecIndex) -> Spec {
        let def = self.definition(op);
        let (plain, snippet) = Spec::parts(def, index);
        let spec = Spec::at(def, plain);
        let Some(place) = snippet else { return spec };
        let snippet = self.snippets.get(op, place).expect("bug: the number of no snippet");
        spec.with_snippet(def, (*snippet).clone()).expect("bug: a snippet that was not checked")
    }

    /// The places of a spec's values on the axes of its op. Its snippet gets a number.
    pub(crate) fn axis_places(&self, op: OpId, spec: &Spec) -> Result<Option<Vec<usize>>, Error> {
        let def = self.definition(op);
        let mut places = Vec::new();
        for (axis, (_, value)) in def.axes.iter().zip(&spec.axes) {
            let place = match &spec.snippet {
                Some(snippet) if axis.open.is_some() => Some(self.snippet(op, snippet)? as usize),
                _ => axis.values.iter().position(|v| &v.value == value),
            };
            places.push(place);
        }
        Ok(places.into_iter().collect())
    }

    /// A snippet that this process knows, by its name as a value of the axis or by its number.
    pub(crate) fn named_snippet(&self, op: OpId, axis: &Axis, value: &str) -> Option<Arc<Snippet>> {
        let place = value.parse::<usize>().ok().and_then(|number| number.checked_sub(axis.values.len()));
        place.map_or_else(|| self.snippets.named(op, value), |place| self.snippets.get(op, place))
    }

    /// What the kernel gets for the values of a call: those of the snippet that its scalar chose, in the order of their
    /// names.
    pub(crate) fn values(
        &self,
        op: OpId,
        axes: &[usize],
        tensors: &[Tensor],
        values: &[(&str, Value)],
    ) -> Result<[u64; MAX_PARAMS], Error> {
        let Some(open) = self.signature(op).open else {
            return if values.is_empty() { Ok([0; MAX_PARAMS]) } else { self.no_snippet(op, values) };
        };
        let def = self.definition(op);
        let Some(place) = axes[open].checked_sub(def.axes[open].values.len()) else {
            return if values.is_empty() { Ok([0; MAX_PARAMS]) } else { self.no_snippet(op, values) };
        };
        let (mut wrong, mut given) = (Wrong::default(), [0; MAX_PARAMS]);
        let Some(snippet) = self.snippets.get(op, place) else {
            let known = def.axes[open].values.iter().enumerate().map(|(i, v)| format!("{i} ({})", v.value));
            let known = known.collect::<Vec<_>>().join(", ");
            let scalar = def.axes[open].scalar.as_deref().unwrap_or_default();
            wrong.add(
                scalar,
                "value",
                format!("{known}, or the number of a snippet of this op"),
                axes[open].to_string(),
            );
            return wrong.result(def).map(|()| given).map_err(Error::Arguments);
        };
        let mut missing = snippet.params.keys().filter(|name| values.iter().all(|(n, _)| n != name)).peekable();
        if missing.peek().is_some() {
            let missing = missing.map(String::as_str).collect::<Vec<_>>().join(", ");
            wrong.add(&snippet.name, "parameters", format!("a value of {missing}"), "none");
        }
        for (name, value) in values {
            match snippet.params.iter().enumerate().find(|(_, (n, _))| n == name) {
                Some((i, (_, kind))) => given[i] = bits(def, tensors, (name, *kind, value), &mut wrong),
                None => {
                    let known: Vec<&str> = snippet.params.keys().map(String::as_str).collect();
                    let known = if known.is_empty() { "no parameter".to_owned() } else { known.join(", ") };
                    wrong.add(&snippet.name, "parameters", known, format!("`{name}`"));
                }
            }
        }
        wrong.result(def).map(|()| given).map_err(Error::Arguments)
    }

    fn no_snippet(&self, op: OpId, values: &[(&str, Value)]) -> Result<[u64; MAX_PARAMS], Error> {
        let mut wrong = Wrong::default();
        for (name, _) in values {
            wrong.add(name, "presence", "no parameters without a snippet", "a value");
        }
        wrong.result(self.definition(op)).map(|()| [0; MAX_PARAMS]).map_err(Error::Arguments)
    }
}

/// The word that a kernel gets for a value.
fn bits(op: &Op, tensors: &[Tensor], (name, kind, value): (&str, ParamType, &Value), wrong: &mut Wrong) -> u64 {
    let dtype = if kind == ParamType::F32s { DType::F32 } else { DType::I32 };
    match (kind, value) {
        (ParamType::F32, Value::Number(n)) => u64::from((*n as f32).to_bits()),
        (ParamType::I32, Value::Number(n)) if n.fract() == 0.0 && f64::from(*n as i32) == *n => {
            u64::from(*n as i32 as u32)
        }
        (ParamType::I32, Value::Number(n)) => {
            wrong.add(name, "value", "a whole number of 32 bits", n.to_string());
            0
        }
        (ParamType::F32s | ParamType::I32s, Value::Tensor(tensor)) => {
            if tensor.dtype != dtype {
                wrong.add(name, "dtype", dtype.to_string(), tensor.dtype.to_string());
            }
            let mut step = 1;
            for (extent, stride) in tensor.shape().iter().zip(tensor.strides()).rev() {
                if *extent > 1 && *stride != step && !tensor.is_empty() {
                    wrong.add(
                        name,
                        "stride",
                        "a dense tensor",
                        format!("{:?} for {:?}", tensor.strides(), tensor.shape()),
                    );
                    break;
                }
                step *= extent;
            }
            for (def, written) in op.tensors.iter().zip(tensors).filter(|(def, _)| def.role != Role::In) {
                if !written.is_empty() && !tensor.is_empty() && !tensor.is_apart(written) {
                    wrong.add(name, "aliasing", format!("no overlap with `{}`", def.name), "the same memory");
                }
            }
            tensor.data as u64
        }
        (_, Value::Number(_)) => {
            wrong.add(name, "type", format!("a tensor, as of type {kind}"), "a number");
            0
        }
        (_, Value::Tensor(_)) => {
            wrong.add(name, "type", format!("a number, as of type {kind}"), "a tensor");
            0
        }
    }
}
