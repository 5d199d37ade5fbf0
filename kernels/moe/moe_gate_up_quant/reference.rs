//! Reference of moe_gate_up_quant in float64.

use super::gemm::factor;
use super::moe;
use crate::binding::{Draw, Expected, Problem};

const GROUP: usize = 128;

/// As of moe_gate_up; factors of all blocks differ.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    moe::draw_rows(draw);
    for name in ["x_scale", "w_scale"] {
        let (scales, random) = (draw.tensors.get_mut(name).expect("bug: factors are given"), &mut *draw.random);
        scales.iter_mut().for_each(|s| *s = 0.02 + random.below(1 << 16) as f64 / f64::from(1 << 20));
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let [m, tokens, hidden, inner] = ["m", "tokens", "hidden", "inner"].map(|name| problem.dims[name]);
    let experts = problem.dims["experts"];
    let [x, w, x_scale, w_scale] = ["x", "w", "x_scale", "w_scale"].map(|name| &problem.inputs[name]);
    let (blocks, groups) = ((hidden + 127) / 128, inner as usize / GROUP);
    let (mut out, mut scale) = (problem.inputs["out"].clone(), problem.inputs["scale"].clone());
    let product = |token: i64, expert: i64, row: i64| -> f64 {
        let term = |i: i64| {
            let by = factor(Some(x_scale), [1, tokens, blocks], tokens, [0, token, i]);
            let of = factor(Some(w_scale), [experts, inner / 64, blocks], 2 * inner, [expert, row, i]);
            x[(token * hidden + i) as usize] * w[((expert * 2 * inner + row) * hidden + i) as usize] * by * of
        };
        (0..hidden).map(term).sum()
    };
    for (row, token, expert) in moe::rows(problem, m, tokens) {
        let value = |c: i64| {
            let (gate, up) = (product(token, expert, c), product(token, expert, inner + c));
            moe::gated(problem.scalars["activation"] as u32, gate, up, problem.scalars["limit"])
        };
        let values: Vec<f64> = (0..inner).map(value).collect();
        for (group, values) in values.chunks(GROUP).enumerate() {
            let amax = values.iter().fold(problem.scalars["eps"], |top, v| top.max(v.abs()));
            scale[row * groups + group] = amax / 448.0;
            for (to, v) in out[row * inner as usize + group * GROUP..].iter_mut().zip(values) {
                *to = v / (amax / 448.0);
            }
        }
    }
    vec![Expected::close("out", out), Expected::close("scale", scale)]
}
