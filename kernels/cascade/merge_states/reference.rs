//! Reference of merge_states in float64.

use super::cascade;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let head_dim = problem.dims["head_dim"] as usize;
    let [rows, states, heads] = ["rows", "states", "heads"].map(|d| problem.dims[d] as usize);
    let (v, s) = (&problem.inputs["v"], &problem.inputs["s"]);
    let (mut v_merged, mut s_merged) = (Vec::new(), Vec::new());
    for (row, head) in (0..rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
        let at = |state: usize| (row * states + state) * heads + head;
        let of = |state| (&v[at(state) * head_dim..][..head_dim], s[at(state)]);
        let (values, lse) = cascade::merged(&(0..states).map(of).collect::<Vec<_>>(), head_dim);
        v_merged.extend(values);
        s_merged.push(lse);
    }
    vec![Expected::close("v_merged", v_merged), Expected::close("s_merged", s_merged)]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    draw.tensors.get_mut("s").into_iter().for_each(|s| cascade::draw(s, draw.random));
}
