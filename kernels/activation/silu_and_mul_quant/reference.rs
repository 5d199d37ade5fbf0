//! Reference of silu_and_mul_quant in float64.

use super::activation::{gated, sigmoid};
use crate::binding::{Expected, Problem};

const GROUP: usize = 128;

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let mut values = gated(problem, sigmoid);
    let mut scales = Vec::new();
    for row in values.chunks_exact_mut(problem.dims["hidden"] as usize) {
        for group in row.chunks_mut(GROUP) {
            let amax = group.iter().fold(problem.scalars["eps"], |top, v| top.max(v.abs()));
            group.iter_mut().for_each(|v| *v /= amax / 448.0);
            scales.push(amax / 448.0);
        }
    }
    vec![Expected::close("out", values), Expected::close("scale", scales)]
}
