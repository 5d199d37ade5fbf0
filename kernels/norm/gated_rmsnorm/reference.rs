//! Reference of gated_rmsnorm in float64.

use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (x, gate, weight) = (&problem.inputs["x"], &problem.inputs["gate"], &problem.inputs["weight"]);
    let gate_first = problem.scalars["order"] == 1.0;
    let mut values = Vec::with_capacity(x.len());
    for (row, gates) in x.chunks_exact(weight.len()).zip(gate.chunks_exact(weight.len())) {
        let silu: Vec<f64> = gates.iter().map(|g| g / (1.0 + (-g).exp())).collect();
        let normed: Vec<f64> = row.iter().zip(&silu).map(|(x, s)| if gate_first { x * s } else { *x }).collect();
        let mean_square = normed.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean_square + problem.scalars["eps"]).sqrt();
        let factor = |s: f64| if gate_first { 1.0 } else { s };
        values.extend(normed.iter().zip(weight).zip(&silu).map(|((v, w), s)| v * scale * w * factor(*s)));
    }
    vec![Expected::close("out", values)]
}
