//! Reference of merge_state in float64.

use super::cascade;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let head_dim = problem.dims["head_dim"] as usize;
    let [v_a, v_b] = ["v_a", "v_b"].map(|t| problem.inputs[t].chunks_exact(head_dim));
    let [s_a, s_b] = ["s_a", "s_b"].map(|t| problem.inputs[t].iter());
    let (mut v, mut s) = (Vec::new(), Vec::new());
    for ((v_a, s_a), (v_b, s_b)) in v_a.zip(s_a).zip(v_b.zip(s_b)) {
        let (values, lse) = cascade::merged(&[(v_a, *s_a), (v_b, *s_b)], head_dim);
        v.extend(values);
        s.push(lse);
    }
    vec![Expected::close("v_merged", v), Expected::close("s_merged", s)]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    for name in ["s_a", "s_b"] {
        draw.tensors.get_mut(name).into_iter().for_each(|s| cascade::draw(s, draw.random));
    }
}
