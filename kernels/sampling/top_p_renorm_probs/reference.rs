//! Reference of top_p_renorm_probs in float64.

use super::sampling::{draw_probs, ranked, renormed};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    draw_probs(draw, "probs", draw.dims["vocab"]);
    let Some(p) = draw.tensors.get_mut("top_ps") else { return };
    let choices = [0.0, 0.1, 0.5, 0.9, 0.99, 1.0, -1.0, 2.0];
    p.iter_mut().for_each(|p| *p = choices[draw.random.below(8) as usize]);
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (probs, vocab) = (&problem.inputs["probs"], problem.dims["vocab"] as usize);
    let mut out = Vec::with_capacity(probs.len());
    for (i, row) in probs.chunks_exact(vocab).enumerate() {
        let top_p = problem.inputs.get("top_ps").map_or(problem.scalars["top_p"], |p| p[i]);
        let order = ranked(row, false);
        let mass: f64 = order.iter().map(|i| row[*i]).sum();
        let mut sum = 0.0;
        let before = order.iter().take_while(|i| {
            let begun = sum > 0.0 && sum >= top_p * mass;
            sum += row[**i];
            top_p >= 1.0 || !begun
        });
        let kept = before.count();
        out.extend(renormed(row, &order[..kept]));
    }
    vec![Expected::close("renorm_probs", out)]
}
