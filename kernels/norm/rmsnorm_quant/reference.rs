//! Reference of rmsnorm_quant in float64.

use super::norm;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let mut y = norm::rms_normalised(problem, &problem.inputs["x"]);
    let scale = problem.inputs.get("scale").map_or(problem.scalars["scale_value"], |s| s[0]);
    y.iter_mut().for_each(|v| *v /= scale);
    vec![Expected::close("out", y)]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    norm::draw_scale(draw);
}
