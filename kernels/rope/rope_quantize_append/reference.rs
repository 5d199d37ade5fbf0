//! Reference of rope_quantize_append in float64.

use super::{page, rope};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (q, kv) = (problem.scalars["quant_scale_q"], problem.scalars["quant_scale_kv"]);
    let scaled = |values: &[f64], scale: f64| values.iter().map(|x| x * scale).collect::<Vec<_>>();
    let turned = |name| rope::turned(problem, &problem.inputs[name], problem.dims["rotary_dim"] as usize, "pos_ids");
    let mut expected = vec![Expected::close("q_rope_out", scaled(&turned("q_rope"), q))];
    if let Some(values) = problem.inputs.get("q_nope") {
        expected.push(Expected::close("q_nope_out", scaled(values, q)));
    }
    let appended = |cache: &str, values: &[f64]| page::appended(problem, cache, &scaled(values, kv));
    expected.push(Expected::close("k_rope_cache", appended("k_rope_cache", &turned("k_rope"))));
    for (name, cache) in [("k_nope", "k_nope_cache"), ("v", "v_cache")] {
        if let Some(values) = problem.inputs.get(name) {
            expected.push(Expected::close(cache, appended(cache, values)));
        }
    }
    expected
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    rope::draw(draw, "pos_ids");
    page::draw(draw);
}
