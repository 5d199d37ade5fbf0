//! Reference of act_and_mul in float64. Gates are written so that nothing cancels where they are small.

use super::activation::{gated, normal_distribution, sigmoid};
use crate::binding::{Expected, Problem};
use std::f64::consts::PI;

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let gate = match problem.scalars["activation"] as i64 {
        0 => sigmoid,
        1 => normal_distribution,
        _ => |x: f64| sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)),
    };
    vec![Expected::close("out", gated(problem, gate))]
}
