//! Reference of top_k_mask_logits.

use super::sampling::{draw_scores, draw_top_ks, ranked, top_ks};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    draw_scores(draw, "logits", draw.dims["vocab"]);
    draw_top_ks(draw, draw.dims["vocab"]);
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (logits, vocab) = (&problem.inputs["logits"], problem.dims["vocab"] as usize);
    let mut out = vec![f64::NEG_INFINITY; logits.len()];
    let ks = top_ks(problem, logits.len() / vocab, vocab);
    for ((row, out), k) in logits.chunks_exact(vocab).zip(out.chunks_exact_mut(vocab)).zip(ks) {
        ranked(row, false)[..k].iter().for_each(|i| out[*i] = row[*i]);
    }
    vec![Expected::exact("masked_logits", out)]
}
