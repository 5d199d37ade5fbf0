//! Reference of top_k_page_table_transform.

use super::sampling::{draw_lengths, draw_scores, taken};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    draw_scores(draw, "input", draw.dims["max_len"]);
    draw_lengths(draw);
    let batch = draw.dims["batch"];
    for (name, least, count) in [("src_page_table", 0, 1 << 20), ("row_to_batch", -1, batch + 2)] {
        let Some(values) = draw.tensors.get_mut(name) else { continue };
        values.iter_mut().for_each(|v| *v = (least + draw.random.below(count as u64) as i64) as f64);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (max_len, batch, k) = (problem.dims["max_len"] as usize, problem.dims["batch"], problem.dims["k"] as usize);
    let table = &problem.inputs["src_page_table"];
    let mut out = Vec::new();
    for (row, taken) in taken(problem).into_iter().enumerate() {
        let at = problem.inputs.get("row_to_batch").map_or(row as i64, |b| b[row] as i64);
        let known = (0..batch).contains(&at);
        let entries = taken.iter().filter(|_| known).map(|i| table[at as usize * max_len + i]);
        out.extend(entries.chain(std::iter::repeat(-1.0)).take(k));
    }
    vec![Expected::exact("output_page_table", out)]
}
