//! Launcher of bmm.

use super::gemm::{self, HOPPER, PORTABLE, Scales, Tile, Work, bytes, div_ceil};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_bmm_params;

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

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let load = gemm::load(call.tensor("a"), call.tensor("b"));
    let work = work(call);
    if load != gemm::ONE_BY_ONE {
        let (tiles, count) = work.order();
        tiles[..count].iter().for_each(|tile| choices.push(&[*tile, load, PORTABLE]));
    }
    choices.push(&[64, gemm::ONE_BY_ONE, PORTABLE]);
    // After all others: it is offered to `parbake tune`, and not chosen before it has been measured on a GPU.
    if target == Target::SM_90A {
        let ids = gemm::hopper_tiles(call.tensor("a"), call.tensor("b"), load);
        let (tiles, count): ([u32; 5], _) = work.order_of(ids, Tile::hopper);
        tiles[..count].iter().for_each(|tile| choices.push(&[*tile, load, HOPPER]));
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [out, a, b] = ["out", "a", "b"].map(|name| call.tensor(name));
    let work = work(call);
    let tactic = [0, 1, 2].map(|i| tactic.0[i]);
    let (tile, [a_map, b_map]) = gemm::tile_and_maps(a, b, tactic);
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
    if tactic[2] == HOPPER {
        let grid = [blocks.min(work.processors) as u32, 1, 1];
        return Launch::new(Params::new(params), grid, tile.threads).shared(tile.hopper_shared()).maps(2);
    }
    Launch::new(Params::new(params), [blocks.max(1) as u32, 1, 1], tile.threads).shared(tile.shared())
}
