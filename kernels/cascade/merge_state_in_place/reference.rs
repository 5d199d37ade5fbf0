//! Reference of merge_state_in_place in float64.

use super::cascade;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let head_dim = problem.dims["head_dim"] as usize;
    let (mut v, mut s) = (problem.inputs["v"].clone(), problem.inputs["s"].clone());
    let (v_other, s_other) = (&problem.inputs["v_other"], &problem.inputs["s_other"]);
    let (mask, heads) = (problem.inputs.get("mask"), problem.dims["heads"] as usize);
    for (i, head) in v.chunks_exact_mut(head_dim).enumerate() {
        if mask.is_some_and(|mask| mask[i / heads] == 0.0) {
            continue;
        }
        let (values, lse) =
            cascade::merged(&[(head, s[i]), (&v_other[i * head_dim..][..head_dim], s_other[i])], head_dim);
        head.copy_from_slice(&values);
        s[i] = lse;
    }
    vec![Expected::close("v", v), Expected::close("s", s)]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    for name in ["s", "s_other"] {
        draw.tensors.get_mut(name).into_iter().for_each(|s| cascade::draw(s, draw.random));
    }
    for mask in draw.tensors.get_mut("mask").into_iter().flatten() {
        *mask = draw.random.below(2) as f64;
    }
}
