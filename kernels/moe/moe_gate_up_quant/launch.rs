//! Launcher of moe_gate_up_quant.

use super::gemm::{self, HOPPER, NO_MAP, PORTABLE, Tile, bytes, div_ceil};
use super::moe::{gated_grid, gated_tiles, gated_work, hopper_grid, hopper_shared, hopper_tile};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_moe_gate_up_quant_params;

/// Elements along k that share a factor, and columns of a group.
const BLOCK: i64 = 128;

/// A tile of so many rows, with 128 columns of both products.
fn tile(rows: u32) -> Tile {
    Tile::of(256 + rows, 1)
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let (hidden, inner) = (call.dim("hidden"), call.dim("inner"));
    if hidden % 16 != 0 {
        wrong.add("x", "shape", "a multiple of 16 in dimension 1", hidden.to_string());
    }
    if inner % BLOCK != 0 {
        wrong.add("out", "shape", "a multiple of 128 in dimension 1: whole groups", inner.to_string());
    }
    for name in ["x", "w"] {
        let tensor = call.tensor(name);
        if !tensor.is_empty() && tensor.alignment(16) != 16 {
            wrong.add(name, "alignment", "rows at multiples of 16 bytes", format!("{} bytes", tensor.alignment(16)));
        }
    }
    let out = call.tensor("out");
    if !out.is_empty() && out.alignment(4) != 4 {
        wrong.add("out", "alignment", "rows at multiples of 4 bytes", format!("{} bytes", out.alignment(4)));
    }
    let far = call.tensor("x_scale").stride(0).saturating_mul(call.dim("tokens"));
    if far > i64::from(i32::MAX) {
        wrong.add("x_scale", "stride", "factors that are less than 2^31 elements apart", far.to_string());
    }
    let blocks = gated_tiles(call, 16).saturating_mul(inner / BLOCK);
    if blocks > i64::from(i32::MAX) {
        wrong.add("out", "shape", "at most 2147483647 tiles of 16 × 128", blocks.to_string());
    }
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let work = gated_work(call, 1);
    let cost = |rows: u32| work.best(tile(rows)).1;
    let order = if cost(16) <= cost(64) { [16, 64] } else { [64, 16] };
    order.iter().for_each(|rows| choices.push(&[*rows, PORTABLE]));
    // After all others: it is offered to `parbake tune`, and not chosen before it has been measured on a GPU.
    if target == Target::SM_90A && gemm::has_map(call.tensor("w")) {
        let (tiles, count): ([u32; 4], _) = work.order_of(&[16, 32, 64, 128], hopper_tile);
        tiles[..count].iter().for_each(|rows| choices.push(&[*rows, HOPPER]));
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [x, x_scale, w, w_scale] = ["x", "x_scale", "w", "w_scale"].map(|name| call.tensor(name));
    let [out, scale] = ["out", "scale"].map(|name| call.tensor(name));
    let hopper = tactic.0[1] == HOPPER;
    let tile = if hopper { hopper_tile(tactic.0[0], 1) } else { tile(tactic.0[0]) };
    let n_tiles = div_ceil(call.dim("inner"), BLOCK);
    let params = pb_moe_gate_up_quant_params {
        w_map: if hopper { gemm::map(w, true, 128) } else { NO_MAP },
        x: x.data,
        x_scale: x_scale.data,
        w: w.data,
        w_scale: w_scale.data,
        indptr: call.tensor("indptr").data,
        rows: call.tensor("rows").data,
        out: out.data,
        scale: scale.data,
        x_row: bytes(x, 0),
        x_scale_row: x_scale.stride(0),
        x_scale_k: x_scale.stride(1),
        w_expert: bytes(w, 0),
        w_row: bytes(w, 1),
        w_scale_expert: w_scale.stride(0),
        w_scale_row: w_scale.stride(1),
        w_scale_k: w_scale.stride(2),
        out_row: bytes(out, 0),
        scale_row: scale.stride(0),
        scale_group: scale.stride(1),
        m: call.dim("m") as i32,
        groups: call.dim("experts") as i32,
        tokens: call.dim("tokens") as i32,
        n_tiles: n_tiles as i32,
        hidden: call.dim("hidden") as i32,
        inner: call.dim("inner") as i32,
        activation: call.int("activation") as i32,
        limit: call.scalar("limit"),
        eps: call.scalar("eps"),
    };
    let tiles = gated_tiles(call, tile.rows) * n_tiles;
    if hopper {
        let launch = Launch::new(Params::new(params), hopper_grid(call, tiles), tile.threads);
        return launch.shared(hopper_shared(&tile)).maps(1);
    }
    let grid = gated_grid(call, tiles);
    Launch::new(Params::new(params), grid, tile.threads).shared(tile.shared())
}
