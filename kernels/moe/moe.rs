//! What the ops of mixtures of experts share.

use super::activation::{normal_distribution, sigmoid};
use super::gemm::{Tile, Work, div_ceil};
use crate::binding::{Checked, Draw, Problem};
use std::f64::consts::PI;

/// Scores of the experts of a token: 0 softmax over all logits, 1 sigmoid, 2 the logits. None is NaN; a row of −inf has a
/// softmax of 0.
pub(crate) fn scores(logits: &[f64], scoring: u32) -> Vec<f64> {
    match scoring {
        0 => {
            let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = logits.iter().map(|x| if x.is_finite() { (x - top).exp() } else { 0.0 }).collect();
            let sum: f64 = powers.iter().sum();
            powers.iter().map(|e| if sum > 0.0 { e / sum } else { 0.0 }).collect()
        }
        1 => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        _ => logits.to_vec(),
    }
}

/// The first of the greatest, in order.
fn best(values: &[f64], among: impl Iterator<Item = usize>, k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = among.collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    order.truncate(k);
    order
}

/// The k experts that are chosen, the best first, of equal ones the first.
pub(crate) fn chosen(by: &[f64], k: usize, groups: usize, kept: usize, group_best: usize) -> Vec<usize> {
    let size = by.len() / groups;
    let sum = |g: usize| best(by, g * size..(g + 1) * size, group_best).iter().map(|e| by[*e]).sum::<f64>();
    let sums: Vec<f64> = (0..groups).map(sum).collect();
    let groups = best(&sums, 0..groups, kept);
    best(by, (0..by.len()).filter(|e| groups.contains(&(e / size))), k)
}

/// Places that so many choices take at most, each expert's padded to whole tiles.
pub(crate) fn most_places(choices: i64, experts: i64, tile: i64) -> i64 {
    (choices + choices.min(experts) * (tile - 1)) / tile * tile
}

/// Choices sorted by expert.
pub(crate) struct Sorted {
    /// For each place the choice that went there.
    pub choices: Vec<Option<usize>>,
    /// Where the places of each expert begin, and behind the last one's.
    pub indptr: Vec<usize>,
}

impl Sorted {
    /// Of experts that are given by their ids.
    pub(crate) fn new(ids: &[i64], experts: i64, first: i64, tile: usize) -> Self {
        let (mut choices, mut indptr) = (Vec::new(), vec![0]);
        for expert in first..first + experts {
            choices.extend(ids.iter().enumerate().filter(|(_, id)| **id == expert).map(|(i, _)| Some(i)));
            choices.resize(choices.len().next_multiple_of(tile), None);
            indptr.push(choices.len());
        }
        Self { choices, indptr }
    }
}

/// The scalar `activation` of moe_gate_up in float64.
pub(crate) fn gated(activation: u32, gate: f64, up: f64, limit: f64) -> f64 {
    match activation {
        0 => gate * sigmoid(gate) * up,
        1 => gate * normal_distribution(gate) * up,
        2 => gate * sigmoid(2.0 * (2.0 / PI).sqrt() * (gate + 0.044715 * gate * gate * gate)) * up,
        _ => {
            let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
            gate * sigmoid(1.702 * gate) * (up + 1.0)
        }
    }
}

/// What the first half of experts asks for, of elements of so many bytes: experts of the mean size; half the columns of a
/// tile are those of gate, half those of up.
pub(crate) fn gated_work(call: &Checked<'_>, bytes: i64) -> Work {
    let m = call.dim("m");
    let groups = call.dim("experts").clamp(1, m.max(1));
    let n = 2 * call.dim("inner");
    let processors = call.int("processors");
    Work {
        m: div_ceil(m, groups),
        n,
        k: call.dim("hidden"),
        groups,
        bytes,
        out_bytes: 1,
        processors,
        room: 0,
        tickets: 0,
    }
}

/// A tile of so many rows by wgmma, as `HopperGatedShape` in hopper_gated.cuh has it: 128 columns of both products.
pub(crate) fn hopper_tile(rows: u32, bytes: i64) -> Tile {
    let stages = if rows == 128 { 4 } else { 5 };
    Tile { rows: i64::from(rows), columns: 256, stages, cuts: false, ..Tile::hopper(rows, bytes) }
}

/// Its dynamic shared memory: stages, and a panel of 16 rows of both products.
pub(crate) fn hopper_shared(tile: &Tile) -> u32 {
    tile.shared() + 1024 + 16 * (256 * 4 + 16)
}

/// Tiles of rows, at most: each expert ends with one of its own, and none has no row.
pub(crate) fn gated_tiles(call: &Checked<'_>, rows: i64) -> i64 {
    let m = call.dim("m");
    m.min((m + call.dim("experts") * (rows - 1)) / rows)
}

/// Blocks for so many tiles at most. Some of the tiles may not exist, which only the device knows; so blocks take several,
/// one after the other, and are so many that it doesn't matter whose tiles take longest.
pub(crate) fn gated_grid(call: &Checked<'_>, tiles: i64) -> [u32; 3] {
    const TURNS: i64 = 16;
    [tiles.clamp(1, TURNS * call.int("processors")) as u32, 1, 1]
}

/// The same on Hopper, where a block has a multiprocessor of its own.
pub(crate) fn hopper_grid(call: &Checked<'_>, tiles: i64) -> [u32; 3] {
    [tiles.clamp(1, call.int("processors")) as u32, 1, 1]
}

/// Experts with any number of rows, some with none, and rows of none; rows of x in any order, some outside.
pub(crate) fn draw_rows(draw: &mut Draw<'_>) {
    let (m, experts, tokens) = (draw.dims["m"], draw.dims["experts"] as usize, draw.dims["tokens"]);
    let random = &mut *draw.random;
    let mut below = |n: i64| random.below(n.max(1) as u64) as i64;
    let mut ends: Vec<i64> = (0..=experts).map(|_| below(m + 1)).collect();
    ends.sort_unstable();
    ends[0] = 0;
    if experts % 2 == 0 {
        ends[experts] = m;
    }
    draw.tensors.insert("indptr".to_owned(), ends.iter().map(|end| *end as f64).collect());
    let rows = (0..m).map(|_| if below(9) == 0 { below(2) * (tokens + 1) - 1 } else { below(tokens) } as f64);
    draw.tensors.insert("rows".to_owned(), rows.collect());
}

/// The rows of experts: each with its row of x and its expert.
pub(crate) fn rows(problem: &Problem, m: i64, tokens: i64) -> Vec<(usize, i64, i64)> {
    let [rows, indptr] = ["rows", "indptr"].map(|name| &problem.inputs[name]);
    let of = |(expert, ends): (usize, &[f64])| {
        (ends[0] as usize..(ends[1] as usize).min(m as usize)).map(move |row| (row, rows[row] as i64, expert as i64))
    };
    let all = indptr.windows(2).enumerate().flat_map(of);
    all.filter(|(_, token, _)| (0..tokens).contains(token)).collect()
}
