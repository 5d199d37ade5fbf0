//! Reference of concat_mla_k.

use super::page;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let [heads, nope_dim, rope_dim] = ["heads", "nope_dim", "rope_dim"].map(|d| problem.dims[d] as usize);
    let (nope, rope) = (&problem.inputs["k_nope"], &problem.inputs["k_rope"]);
    let mut k = Vec::with_capacity(nope.len() / nope_dim * (nope_dim + rope_dim));
    for (i, head) in nope.chunks_exact(nope_dim).enumerate() {
        k.extend_from_slice(head);
        k.extend_from_slice(&rope[i / heads * rope_dim..][..rope_dim]);
    }
    vec![Expected::exact("k", k)]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    page::fill(draw);
}
