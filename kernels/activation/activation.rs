//! What the launchers of the activations share.

use crate::binding::{Checked, Problem};

/// Whether every row of `x`, its second half, and every row of `out` can be accessed `lane` elements at once.
pub(crate) fn fits(call: &Checked<'_>, lane: u64) -> bool {
    let rows = |name: &&str| {
        let tensor = call.tensor(name);
        let step = if tensor.shape()[0] > 1 { tensor.stride(0) as u64 } else { 0 };
        let unit = lane * tensor.dtype.bytes() as u64;
        (tensor.data as u64).is_multiple_of(unit) && step.is_multiple_of(lane)
    };
    (call.dim("hidden") as u64).is_multiple_of(lane) && ["x", "out"].iter().all(rows)
}

/// gate(x[:, :hidden]) · x[:, :hidden] · x[:, hidden:], in float64.
pub(crate) fn gated(problem: &Problem, gate: fn(f64) -> f64) -> Vec<f64> {
    let hidden = problem.dims["hidden"] as usize;
    let row = |row: &[f64]| {
        let (x, y) = row.split_at(hidden);
        x.iter().zip(y).map(|(x, y)| x * gate(*x) * y).collect::<Vec<_>>()
    };
    problem.inputs["x"].chunks_exact(2 * hidden).flat_map(row).collect()
}

/// 1 / (1 + exp(−x)).
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
