//! Launcher of moe_gate_up.

use super::gemm::{self, HOPPER, NO_MAP, PORTABLE, Tile, bytes, div_ceil};
use super::moe::{gated_grid, gated_tiles, gated_work, hopper_grid, hopper_shared, hopper_tile};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_moe_gate_up_params;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let hidden = call.dim("hidden");
    if hidden % 8 != 0 {
        wrong.add("x", "shape", "a multiple of 8 in dimension 1", hidden.to_string());
    }
    for name in ["x", "w"] {
        let tensor = call.tensor(name);
        if !tensor.is_empty() && tensor.alignment(16) != 16 {
            wrong.add(name, "alignment", "rows at multiples of 16 bytes", format!("{} bytes", tensor.alignment(16)));
        }
    }
    let blocks = gated_tiles(call, 16).saturating_mul(div_ceil(call.dim("inner"), 32));
    if blocks > i64::from(i32::MAX) {
        wrong.add("out", "shape", "at most 2147483647 tiles of 16 × 32", blocks.to_string());
    }
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let work = gated_work(call, 2);
    let (tiles, count) = work.order();
    tiles[..count].iter().for_each(|tile| choices.push(&[*tile, PORTABLE]));
    // After all others: it is offered to `parbake tune`, and not chosen before it has been measured on a GPU.
    if target == Target::SM_90A && gemm::has_map(call.tensor("w")) {
        let (tiles, count): ([u32; 4], _) = work.order_of(&[16, 32, 64, 128], hopper_tile);
        tiles[..count].iter().for_each(|tile| choices.push(&[*tile, HOPPER]));
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [x, w, bias, out] = ["x", "w", "bias", "out"].map(|name| call.tensor(name));
    let hopper = tactic.0[1] == HOPPER;
    let tile = if hopper { hopper_tile(tactic.0[0], 2) } else { Tile::of(tactic.0[0], 2) };
    let n_tiles = div_ceil(call.dim("inner"), tile.columns / 2);
    let params = pb_moe_gate_up_params {
        w_map: if hopper { gemm::map(w, true, 128) } else { NO_MAP },
        x: x.data,
        w: w.data,
        bias: bias.data,
        indptr: call.tensor("indptr").data,
        rows: call.tensor("rows").data,
        out: out.data,
        x_row: bytes(x, 0),
        w_expert: bytes(w, 0),
        w_row: bytes(w, 1),
        bias_expert: if bias.is_absent() { 0 } else { bytes(bias, 0) },
        out_row: bytes(out, 0),
        m: call.dim("m") as i32,
        groups: call.dim("experts") as i32,
        tokens: call.dim("tokens") as i32,
        n_tiles: n_tiles as i32,
        hidden: call.dim("hidden") as i32,
        inner: call.dim("inner") as i32,
        activation: call.int("activation") as i32,
        limit: call.scalar("limit"),
        wide: gemm::wide(out).into(),
    };
    let tiles = gated_tiles(call, tile.rows) * n_tiles;
    if hopper {
        let launch = Launch::new(Params::new(params), hopper_grid(call, tiles), tile.threads);
        return launch.shared(hopper_shared(&tile)).maps(1);
    }
    let grid = gated_grid(call, tiles);
    Launch::new(Params::new(params), grid, tile.threads).shared(tile.shared())
}
