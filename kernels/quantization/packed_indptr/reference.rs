//! Reference of packed_indptr: the contract of params.h, one f32 operation after the other.

use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    let mut end = 0.0;
    if let Some(indptr) = draw.tensors.get_mut("indptr") {
        for begin in indptr {
            *begin = end;
            // Some segments are empty.
            end += draw.random.below(50).saturating_sub(10) as f64;
        }
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let mut end = 0.0;
    let mut out = vec![end];
    for pair in problem.inputs["indptr"].windows(2) {
        end += ((pair[1] - pair[0]).max(0.0) / 8.0).ceil();
        out.push(end);
    }
    vec![Expected::exact("out", out)]
}
