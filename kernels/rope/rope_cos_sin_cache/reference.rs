//! Reference of rope_cos_sin_cache in float64.

use super::rope;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let head_dim = problem.dims["head_dim"] as usize;
    let turned = |name: &str| rope::turned(problem, &problem.inputs[name], head_dim, "positions");
    vec![Expected::close("q_out", turned("q")), Expected::close("k_out", turned("k"))]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    rope::draw(draw, "positions");
}
