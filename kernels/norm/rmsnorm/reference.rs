//! Reference of rmsnorm in float64.

use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (x, weight) = (&problem.inputs["x"], &problem.inputs["weight"]);
    let (eps, bias) = (problem.scalars["eps"], problem.scalars["weight_bias"]);
    let mut values = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let mean_square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean_square + eps).sqrt();
        values.extend(row.iter().zip(weight).map(|(v, w)| v * scale * (w + bias)));
    }
    vec![Expected::close("out", values)]
}
