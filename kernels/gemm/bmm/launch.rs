//! Launcher of bmm.

use super::gemm::{self, Scales, Tile, Work, bytes, div_ceil};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Tensor, TensorMap, Wrong};
use crate::params::{pb_bmm_params, pb_tensor_map};
use parbake_model::dtype::DType;

fn work(call: &Checked<'_>) -> Work {
    let [batch, m, n, k] = ["batch", "m", "n", "k"].map(|name| call.dim(name));
    Work {
        m,
        n,
        k,
        groups: batch,
        bytes: call.tensor("a").dtype.bytes() as i64,
        out_bytes: call.tensor("out").dtype.bytes() as i64,
        processors: call.int("processors"),
        room: call.dim("partial_words"),
        tickets: call.dim("ticket_words"),
    }
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let [batch, m, n, k] = ["batch", "m", "n", "k"].map(|name| call.dim(name));
    gemm::check_scales(call, "a_scale", batch, m, k, wrong);
    gemm::check_scales(call, "b_scale", batch, n, k, wrong);
    if call.given("partial") != call.given("tickets") {
        wrong.add("tickets", "presence", "one with partial, and only then", "the other");
    }
    let partial = call.tensor("partial");
    if !partial.is_empty() && partial.alignment(16) != 16 {
        wrong.add("partial", "alignment", "an address that is a multiple of 16 bytes", format!("{:p}", partial.data));
    }
    // Of the smallest tile, with the most pieces.
    let tile = Tile::of(16, work(call).bytes);
    let blocks = batch.saturating_mul(div_ceil(m, tile.rows)).saturating_mul(div_ceil(n, tile.columns));
    if blocks > i64::from(i32::MAX) / 32 {
        wrong.add("out", "shape", "at most 67108863 tiles of 16 × 64", blocks.to_string());
    }
}

/// The tactic `path`.
const PORTABLE: u32 = 0;
const HOPPER: u32 = 1;

/// Rows of a panel, and of b, that a tile of the other path has.
const SIDE: i64 = 128;

/// A tile of wgmma, as `HopperShape` in hopper.cuh has it. Of out: up to 64 rows and 128 columns, with the operands the other
/// way round, or 128 rows.
fn hopper_tile(id: u32, bytes: i64) -> Tile {
    let side = i64::from(id);
    let (rows, columns) = if id <= 64 { (side, SIDE) } else { (SIDE, side) };
    let percent = match id {
        16 => 30,
        32 => 55,
        64 => 90,
        128 => 140,
        _ => 155,
    };
    let stages = if id == 256 { 4 } else { 6 };
    Tile {
        id,
        rows,
        columns,
        threads: 384,
        depth: 128 / bytes,
        line: 128,
        stages,
        percent,
        together: 1,
        cuts: id < 256,
    }
}

/// Its dynamic shared memory: stages, and a panel of results for each of two groups.
fn hopper_shared(tile: &Tile) -> u32 {
    let side = i64::from(tile.id);
    let panel = if tile.id <= 64 { side * (64 * 4 + 16) } else { 64 * (32 * 4 + 32) };
    tile.shared() + 1024 + 2 * panel as u32
}

/// Whether maps can describe the operands; `load` has looked at the alignment of rows.
fn has_maps(call: &Checked<'_>) -> bool {
    const MOST: i64 = 1 << 32;
    let fits = |t: &Tensor| {
        let steps = (0..3).filter(|d| t.shape()[*d] > 1).map(|d| bytes(t, d));
        t.shape().iter().all(|n| (1..MOST).contains(n)) && steps.into_iter().all(|step| step > 0 && step < MOST << 8)
    };
    fits(call.tensor("a")) && fits(call.tensor("b"))
}

/// The tiles of wgmma for a call.
fn hopper_tiles(call: &Checked<'_>, load: u32) -> &'static [u32] {
    let types = ["a", "b"].map(|name| call.tensor(name).dtype);
    match load {
        gemm::ONE_BY_ONE => &[],
        _ if types.contains(&DType::E5m2) || !has_maps(call) => &[],
        gemm::BY_N => &[128, 256],
        _ if types[0].bytes() == 1 => &[16, 32, 64, 128],
        _ => &[16, 32, 64, 128, 256],
    }
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let load = gemm::load(call.tensor("a"), call.tensor("b"));
    let work = work(call);
    if target == Target::SM_90A {
        let (tiles, count): ([u32; 5], _) = work.order_of(hopper_tiles(call, load), hopper_tile);
        tiles[..count].iter().for_each(|tile| choices.push(&[*tile, load, HOPPER]));
    }
    if load != gemm::ONE_BY_ONE {
        let (tiles, count) = work.order();
        tiles[..count].iter().for_each(|tile| choices.push(&[*tile, load, PORTABLE]));
    }
    choices.push(&[64, gemm::ONE_BY_ONE, PORTABLE]);
}

/// Of an operand whose rows in memory are along k, or along the other dimension, in boxes of so many of these rows.
fn map(t: &Tensor, by_k: bool, rows: i64) -> pb_tensor_map {
    let (inner, outer) = if by_k { (2, 1) } else { (1, 2) };
    TensorMap {
        data: t.data,
        bytes: t.dtype.bytes() as u64,
        dims: [inner, outer, 0].map(|d| t.shape()[d] as u64),
        strides: [outer, 0].map(|d| bytes(t, d) as u64),
        rows: rows as u32,
    }
    .described()
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [out, a, b] = ["out", "a", "b"].map(|name| call.tensor(name));
    let work = work(call);
    let [id, load, path] = [0, 1, 2].map(|i| tactic.0[i]);
    let tile = if path == HOPPER { hopper_tile(id, work.bytes) } else { Tile::of(id, work.bytes) };
    let none = pb_tensor_map { words: [0; 16] };
    let (a_map, b_map) = match path {
        // Rows that lie along n come 64 at a time.
        HOPPER if load == gemm::BY_N => (map(a, true, tile.rows), map(b, false, 64)),
        HOPPER => (map(a, true, tile.rows), map(b, true, tile.columns)),
        _ => (none, none),
    };
    let (splits, _) = work.best(tile);
    let [a_scale, b_scale] =
        [("a_scale", work.m), ("b_scale", work.n)].map(|(n, rows)| Scales::new(call.tensor(n), rows));
    let (m_tiles, n_tiles) = (div_ceil(work.m, tile.rows), div_ceil(work.n, tile.columns));
    let params = pb_bmm_params {
        a_map,
        b_map,
        a: a.data,
        b: b.data,
        out: out.data,
        bias: call.tensor("bias").data,
        a_scale: a_scale.data,
        b_scale: b_scale.data,
        partial: call.tensor("partial").data,
        tickets: call.tensor("tickets").data,
        a_batch: bytes(a, 0),
        a_row: bytes(a, 1),
        a_k: bytes(a, 2),
        b_batch: bytes(b, 0),
        b_row: bytes(b, 1),
        b_k: bytes(b, 2),
        out_batch: bytes(out, 0),
        out_row: bytes(out, 1),
        a_scale_batch: a_scale.batch,
        a_scale_row: a_scale.row,
        a_scale_k: a_scale.k,
        b_scale_batch: b_scale.batch,
        b_scale_row: b_scale.row,
        b_scale_k: b_scale.k,
        m: work.m as i32,
        n: work.n as i32,
        k: work.k as i32,
        batch: work.groups as i32,
        m_tiles: m_tiles as i32,
        n_tiles: n_tiles as i32,
        splits: splits as i32,
        stages: work.stages(tile, splits) as i32,
        a_scale_shift: a_scale.shift,
        b_scale_shift: b_scale.shift,
        activation: call.int("activation") as i32,
        wide: gemm::wide(out).into(),
    };
    let blocks = work.tiles(tile) * splits;
    if path == HOPPER {
        let grid = [blocks.min(work.processors) as u32, 1, 1];
        return Launch::new(Params::new(params), grid, tile.threads).shared(hopper_shared(&tile)).maps(2);
    }
    Launch::new(Params::new(params), [blocks.max(1) as u32, 1, 1], tile.threads).shared(tile.shared())
}
