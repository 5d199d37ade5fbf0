//! What the launchers of the activations share.

use crate::binding::{Checked, Problem};
use std::f64::consts::{PI, SQRT_2};

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

/// The share of a normal distribution below `x`.
pub(crate) fn normal_distribution(x: f64) -> f64 {
    let tail = 0.5 * erfc(x.abs() / SQRT_2);
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// The complementary error function of a number that is not negative, to about 1e-14 of its value: a power series
/// where it is quick, else a continued fraction (Abramowitz and Stegun, 7.1.6 and 7.1.14).
fn erfc(x: f64) -> f64 {
    if x < 2.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        return 1.0 - 2.0 / PI.sqrt() * (-x * x).exp() * sum;
    }
    let fraction = (1..=120).rev().fold(x, |rest, k| x + 0.5 * f64::from(k) / rest);
    (-x * x).exp() / (PI.sqrt() * fraction)
}

#[cfg(test)]
mod tests {
    use super::{erfc, normal_distribution};

    #[test]
    fn the_distribution_function_has_its_known_values() {
        // Rounded to sixteen digits from tables and from arithmetic with fifty.
        let known = [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-1.0, 0.158_655_253_931_457_05),
            (-3.0, 0.001_349_898_031_630_094_5),
            (-8.0, 6.220_960_574_271_785e-16),
            (-20.0, 2.753_624_118_606_233_7e-89),
        ];
        for (x, want) in known {
            assert!((normal_distribution(x) / want - 1.0_f64).abs() < 1e-12, "{x}");
        }
        // Both ways of finding it meet.
        assert!((erfc(1.999_999_999_999) / erfc(2.000_000_000_001) - 1.0).abs() < 2e-11);
        assert!(normal_distribution(f64::NAN).is_nan());
        assert_eq!(normal_distribution(f64::INFINITY), 1.0);
    }
}
