//! Reference of top_k_renorm_probs in float64.

use super::sampling::{draw_probs, draw_top_ks, ranked, renormed, top_ks};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    draw_probs(draw, "probs", draw.dims["vocab"]);
    draw_top_ks(draw, draw.dims["vocab"]);
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (probs, vocab) = (&problem.inputs["probs"], problem.dims["vocab"] as usize);
    let ks = top_ks(problem, probs.len() / vocab, vocab);
    let rows = probs.chunks_exact(vocab).zip(ks);
    let out = rows.flat_map(|(row, k)| renormed(row, &ranked(row, false)[..k])).collect();
    vec![Expected::close("renorm_probs", out)]
}
