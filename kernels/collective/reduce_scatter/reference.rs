//! Reference of reduce_scatter in float64, for a group of one: `tests/utilities/collective.rs` has those of more.

use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    vec![Expected::close("out", problem.inputs["x"].clone()), Expected::free("pool")]
}
