//! Reference of layernorm_quant in float64.

use super::norm;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let scale = problem.inputs.get("scale").map_or(problem.scalars["scale_value"], |s| s[0]);
    let values = norm::layer_normalised(problem).into_iter().map(|v| v / scale).collect();
    vec![Expected::close("out", values)]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    norm::draw_scale(draw);
}
