//! Reference of softmax in float64.

use crate::binding::{Expected, Problem};

/// The greatest temperature that makes a difference.
const HOTTEST: f64 = 1e38;

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (vocab, one) = (problem.dims["vocab"] as usize, problem.scalars["temperature"]);
    let temperatures = problem.inputs.get("temperatures");
    let rows = problem.inputs["logits"].chunks_exact(vocab).enumerate();
    let row = |(i, x): (usize, &[f64])| softmax(x, temperatures.map_or(one, |t| t[i]));
    vec![Expected::close("probs", rows.flat_map(row).collect())]
}

fn softmax(x: &[f64], temperature: f64) -> Vec<f64> {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if temperature.is_nan() || x.iter().any(|v| v.is_nan()) {
        return vec![f64::NAN; x.len()];
    }
    if top == f64::NEG_INFINITY {
        return vec![0.0; x.len()];
    }
    if temperature <= 0.0 || (1.0 / temperature as f32).is_infinite() {
        let first = x.iter().position(|v| *v == top);
        return (0..x.len()).map(|i| f64::from(u8::from(Some(i) == first))).collect();
    }
    if top == f64::INFINITY {
        return vec![f64::NAN; x.len()];
    }
    let weights: Vec<f64> = x.iter().map(|v| ((v - top) / temperature.min(HOTTEST)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}
