//! Reference of bmm in float64.

use super::gemm;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let dim = |name: &str| problem.dims[name];
    let [batch, m, n, k] = ["batch", "m", "n", "k"].map(dim);
    let shape = |of: &str| ["batch", "rows", "blocks"].map(|d| dim(&format!("{of}_scale_{d}")));
    let (a_shape, b_shape) = (shape("a"), shape("b"));
    let (a, b) = (&problem.inputs["a"], &problem.inputs["b"]);
    let [a_scale, b_scale, bias] = ["a_scale", "b_scale", "bias"].map(|name| problem.inputs.get(name));
    let kind = problem.scalars["activation"] as i64;
    let mut out = Vec::with_capacity((batch * m * n) as usize);
    for (z, i, j) in (0..batch).flat_map(|z| (0..m).flat_map(move |i| (0..n).map(move |j| (z, i, j)))) {
        let row = &a[((z * m + i) * k) as usize..][..k as usize];
        let column = &b[((z * n + j) * k) as usize..][..k as usize];
        let blocks = row.chunks(gemm::BLOCK as usize).zip(column.chunks(gemm::BLOCK as usize)).zip(0..);
        let sum: f64 = blocks
            .map(|((x, y), block)| {
                let at = block * gemm::BLOCK;
                let product: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                let factor = gemm::factor(a_scale, a_shape, m, [z, i, at]);
                product * factor * gemm::factor(b_scale, b_shape, n, [z, j, at])
            })
            .sum();
        out.push(gemm::activation(kind, sum + bias.map_or(0.0, |bias| bias[j as usize])));
    }
    let tickets = problem.inputs.get("tickets").cloned().unwrap_or_default();
    vec![Expected::close("out", out), Expected::exact("tickets", tickets), Expected::free("partial")]
}

/// Factors that are positive and of one size.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    for name in ["a_scale", "b_scale"] {
        if let Some(scales) = draw.tensors.get_mut(name) {
            scales.iter_mut().for_each(|s| *s = 0.25 + draw.random.uniform());
        }
    }
}
