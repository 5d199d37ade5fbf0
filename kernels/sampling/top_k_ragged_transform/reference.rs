//! Reference of top_k_ragged_transform.

use super::sampling::{draw_lengths, draw_scores, taken};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    draw_scores(draw, "input", draw.dims["max_len"]);
    draw_lengths(draw);
    let Some(offsets) = draw.tensors.get_mut("offsets") else { return };
    offsets.iter_mut().for_each(|v| *v = draw.random.below(1 << 20) as f64);
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let k = problem.dims["k"] as usize;
    let mut out = Vec::new();
    for (taken, offset) in taken(problem).iter().zip(&problem.inputs["offsets"]) {
        out.extend(taken.iter().map(|i| *i as f64 + offset).chain(std::iter::repeat(-1.0)).take(k));
    }
    vec![Expected::exact("output_indices", out)]
}
