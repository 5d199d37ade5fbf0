//! Reference of fused_add_rmsnorm_quant_per_token in float64.
//! The contract says that the sum is taken in f32: so it is here.

use super::norm;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (x, residual) = (&problem.inputs["x"], &problem.inputs["residual"]);
    let sums: Vec<f64> = x.iter().zip(residual).map(|(a, b)| f64::from(*a as f32 + *b as f32)).collect();
    let mut y = norm::rms_normalised(problem, &sums);
    let scales = norm::scaled_rows(problem, &mut y);
    vec![Expected::close("out", y), Expected::close("scale", scales), Expected::exact("residual", sums)]
}
