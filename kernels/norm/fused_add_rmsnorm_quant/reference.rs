//! Reference of fused_add_rmsnorm_quant in float64.
//! The contract says that the sum is taken in f32: so it is here.

use super::norm;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (x, residual) = (&problem.inputs["x"], &problem.inputs["residual"]);
    let sums: Vec<f64> = x.iter().zip(residual).map(|(a, b)| f64::from(*a as f32 + *b as f32)).collect();
    let mut y = norm::rms_normalised(problem, &sums);
    let scale = problem.inputs.get("scale").map_or(problem.scalars["scale_value"], |s| s[0]);
    y.iter_mut().for_each(|v| *v /= scale);
    vec![Expected::close("out", y), Expected::exact("residual", sums)]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    norm::draw_scale(draw);
}
