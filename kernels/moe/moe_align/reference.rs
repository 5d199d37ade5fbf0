//! Reference of moe_align: the same integers.

use super::moe;
use crate::binding::{Draw, Expected, Problem};

/// Experts from before the first to behind the last one here, in some rows all the same.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let (experts, first) = (draw.dims["experts"], draw.scalars["first"] as i64);
    let k = draw.dims["k"] as usize;
    let random = &mut *draw.random;
    let ids = draw.tensors.get_mut("ids").expect("bug: the ids are given");
    for (i, row) in ids.chunks_mut(k).enumerate() {
        let same = first + random.below(experts as u64) as i64;
        for id in row.iter_mut() {
            let any = first - 1 + random.below(experts as u64 + 2) as i64;
            *id = match i % 5 {
                3 => same as f64,
                4 if random.below(3) == 0 => -1.0,
                _ => any.max(-1) as f64,
            };
        }
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (k, experts) = (problem.dims["k"] as usize, problem.dims["experts"]);
    let (tile, first) = (problem.scalars["tile"] as usize, problem.scalars["first"] as i64);
    let ids: Vec<i64> = problem.inputs["ids"].iter().map(|id| *id as i64).collect();
    let sorted = moe::Sorted::new(&ids, experts, first, tile);
    let mut rows: Vec<f64> = sorted.choices.iter().map(|c| c.map_or(-1.0, |c| (c / k) as f64)).collect();
    rows.resize(problem.dims["capacity"] as usize, -1.0);
    let mut tile_experts: Vec<f64> = Vec::new();
    for (expert, ends) in sorted.indptr.windows(2).enumerate() {
        tile_experts.resize(ends[1] / tile, expert as f64);
    }
    tile_experts.resize(problem.dims["tiles"] as usize, -1.0);
    let mut places = vec![-1.0; ids.len()];
    for (place, choice) in sorted.choices.iter().enumerate() {
        if let Some(choice) = choice {
            places[*choice] = place as f64;
        }
    }
    let indptr = sorted.indptr.iter().map(|i| *i as f64).collect();
    vec![
        Expected::exact("rows", rows),
        Expected::exact("tile_experts", tile_experts),
        Expected::exact("indptr", indptr),
        Expected::exact("places", places),
    ]
}
