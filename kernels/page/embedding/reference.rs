//! Reference of embedding.

use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (vocab, hidden) = (problem.dims["vocab"], problem.dims["hidden"] as usize);
    let (table, first) = (&problem.inputs["table"], problem.scalars["first"] as i64);
    let row = |id: &f64| {
        let row = *id as i64 - first;
        match *id >= 0.0 && (0..vocab).contains(&row) {
            true => table[row as usize * hidden..][..hidden].to_vec(),
            false => vec![0.0; hidden],
        }
    };
    vec![Expected::exact("out", problem.inputs["ids"].iter().flat_map(row).collect())]
}

/// Numbers of rows that exist, some twice; some of rows that do not.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let (vocab, first) = (draw.dims["vocab"], draw.scalars["first"] as i64);
    let ids = draw.tensors.get_mut("ids").into_iter().flatten();
    for (i, id) in ids.enumerate() {
        *id = match i % 7 {
            3 => -1.0,
            5 => (first + vocab) as f64,
            6 => (first - 1) as f64,
            _ => (first + draw.random.below(vocab.max(1) as u64) as i64) as f64,
        };
    }
}
