//! What the launchers of the activations share.

use crate::binding::{Checked, Problem};

/// What divides by `divisor` on the device, as activation.cuh says: magic and shift.
pub(crate) fn divider(divisor: u32) -> (u32, u32) {
    let log = divisor.next_power_of_two().trailing_zeros();
    (((1u64 << (31 + log)) / u64::from(divisor) + 1) as u32, 31 + log)
}

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

#[cfg(test)]
mod tests {
    use super::divider;

    #[test]
    fn division_by_multiplication_is_exact() {
        for divisor in (1..=3000).chain([4095, 4096, 4097, 65_535, 65_536, 1_048_575, 1_048_576]) {
            let (magic, shift) = divider(divisor);
            let multiples = [0, 1, 2, 7, (i32::MAX as u32) / divisor].map(|n| n * divisor);
            let around = multiples.iter().flat_map(|n| [n.saturating_sub(1), *n, n + divisor / 2, n + divisor - 1]);
            for n in around.filter(|n| *n <= i32::MAX as u32).chain([i32::MAX as u32]) {
                assert_eq!((u64::from(n) * u64::from(magic)) >> shift, u64::from(n / divisor), "{n} / {divisor}");
            }
        }
    }
}
