//! Reference of fused_add_rmsnorm in float64. The contract says that the sum is taken in f32: so it is here.

use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (x, residual, weight) = (&problem.inputs["x"], &problem.inputs["residual"], &problem.inputs["weight"]);
    let (eps, bias) = (problem.scalars["eps"], problem.scalars["weight_bias"]);
    let sums: Vec<f64> = x.iter().zip(residual).map(|(a, b)| f64::from(*a as f32 + *b as f32)).collect();
    let mut values = Vec::with_capacity(x.len());
    for row in sums.chunks_exact(weight.len()) {
        let mean_square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean_square + eps).sqrt();
        values.extend(row.iter().zip(weight).map(|(v, w)| v * scale * (w + bias)));
    }
    vec![Expected::close("x", values), Expected::exact("residual", sums)]
}
