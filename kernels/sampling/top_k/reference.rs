//! Reference of top_k.

use super::sampling::{draw_scores, ranked};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    draw_scores(draw, "input", draw.dims["cols"]);
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (cols, k) = (problem.dims["cols"] as usize, problem.dims["k"] as usize);
    let (sorted, late) = (problem.scalars["sorted"] != 0.0, problem.scalars["tie_break"] == 2.0);
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in problem.inputs["input"].chunks_exact(cols) {
        let mut taken = ranked(row, late);
        taken.truncate(k);
        if !sorted {
            taken.sort_unstable();
        }
        let beyond = k - taken.len();
        values.extend(taken.iter().map(|i| row[*i]).chain(std::iter::repeat_n(f64::NEG_INFINITY, beyond)));
        indices.extend(taken.iter().map(|i| *i as f64).chain(std::iter::repeat_n(-1.0, beyond)));
    }
    vec![Expected::exact("values", values), Expected::exact("indices", indices)]
}
