//! Reference of rope_quantize in float64.

use super::rope;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (q, k) = (problem.scalars["quant_scale_q"], problem.scalars["quant_scale_kv"]);
    let mut expected = Vec::new();
    for (name, out, scale) in [("q_rope", "q_rope_out", q), ("k_rope", "k_rope_out", k)] {
        let turned = rope::turned(problem, &problem.inputs[name], problem.dims["rotary_dim"] as usize, "pos_ids");
        expected.push(Expected::close(out, turned.iter().map(|x| x * scale).collect()));
    }
    for (name, out, scale) in [("q_nope", "q_nope_out", q), ("k_nope", "k_nope_out", k)] {
        if let Some(values) = problem.inputs.get(name) {
            expected.push(Expected::close(out, values.iter().map(|x| x * scale).collect()));
        }
    }
    expected
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    rope::draw(draw, "pos_ids");
}
