//! Reference of copy_blocks.

use super::page;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (blocks, block) = (problem.dims["blocks"], problem.dims["block"] as usize);
    let copied = |name: &str| {
        let before = &problem.inputs[name];
        let mut after = before.clone();
        for pair in problem.inputs["block_mapping"].chunks_exact(2) {
            if let [from, to] = [pair[0], pair[1]].map(|b| b as i64)
                && [from, to].iter().all(|b| (0..blocks).contains(b))
            {
                let (from, to) = (from as usize * block, to as usize * block);
                after[to..to + block].copy_from_slice(&before[from..from + block]);
            }
        }
        after
    };
    vec![Expected::exact("k_cache", copied("k_cache")), Expected::exact("v_cache", copied("v_cache"))]
}

/// Destinations are in one pair; sources may be in several; some pairs have no destination, or a block past the end.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    page::fill(draw);
    let blocks = draw.dims["blocks"];
    let mut order: Vec<i64> = (0..blocks).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, draw.random.below(i as u64 + 1) as usize);
    }
    let (sources, destinations) = order.split_at(order.len() / 2);
    for (i, pair) in draw.tensors.get_mut("block_mapping").into_iter().flat_map(|m| m.chunks_exact_mut(2)).enumerate() {
        let from = if sources.is_empty() { -1 } else { sources[draw.random.below(sources.len() as u64) as usize] };
        let to = if i % 5 == 4 { -1 } else { destinations.get(i).copied().unwrap_or(blocks) };
        (pair[0], pair[1]) = (from as f64, to as f64);
    }
}
