//! Reference of moe_gate_up in float64.

use super::moe;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    moe::draw_rows(draw);
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let [m, tokens, hidden, inner] = ["m", "tokens", "hidden", "inner"].map(|name| problem.dims[name] as usize);
    let (x, w, bias) = (&problem.inputs["x"], &problem.inputs["w"], problem.inputs.get("bias"));
    let (kind, limit) = (problem.scalars["activation"] as u32, problem.scalars["limit"]);
    let mut out = problem.inputs["out"].clone();
    for (row, token, expert) in moe::rows(problem, m as i64, tokens as i64) {
        let x = &x[token as usize * hidden..][..hidden];
        let product = |column: usize| {
            let at = expert as usize * 2 * inner + column;
            let sum: f64 = x.iter().zip(&w[at * hidden..][..hidden]).map(|(x, w)| x * w).sum();
            sum + bias.map_or(0.0, |bias| bias[at])
        };
        for column in 0..inner {
            out[row * inner + column] = moe::gated(kind, product(column), product(inner + column), limit);
        }
    }
    vec![Expected::close("out", out)]
}
