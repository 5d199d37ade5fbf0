//! Reference of qk_rmsnorm in float64.

use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (eps, bias) = (problem.scalars["eps"], problem.scalars["weight_bias"]);
    let normalised = |x: &str, weight: &str| {
        let (x, weight) = (&problem.inputs[x], &problem.inputs[weight]);
        let mut values = Vec::with_capacity(x.len());
        for head in x.chunks_exact(weight.len()) {
            let mean_square = head.iter().map(|v| v * v).sum::<f64>() / head.len() as f64;
            let scale = 1.0 / (mean_square + eps).sqrt();
            values.extend(head.iter().zip(weight).map(|(v, w)| v * scale * (w + bias)));
        }
        values
    };
    vec![Expected::close("q", normalised("q", "q_weight")), Expected::close("k", normalised("k", "k_weight"))]
}
