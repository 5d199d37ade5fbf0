//! Reference of all_reduce_rmsnorm in float64, for a group of one: `tests/utilities/collective.rs` has those of more.
//! The contract says that sums are taken in f32: so it is here.

use super::norm;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (x, residual) = (&problem.inputs["x"], &problem.inputs["residual"]);
    let sums: Vec<f64> = x.iter().zip(residual).map(|(a, b)| f64::from(*a as f32 + *b as f32)).collect();
    let y = norm::rms_normalised(problem, &sums);
    let scale = problem.inputs.get("scale").map_or(problem.scalars["scale_value"], |s| s[0]);
    vec![
        Expected::exact("residual_out", sums),
        Expected::close("quant", y.iter().map(|v| v / scale).collect()),
        Expected::close("out", y),
        Expected::free("pool"),
    ]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    norm::draw_scale(draw);
}
