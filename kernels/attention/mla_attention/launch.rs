//! Launcher of mla_attention.

use super::attention::{self, LATENT, Layout, Tile, bytes, divisor};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_mla_attention_params;
use std::f32::consts::LOG2_E;

/// Elements of a latent.
pub(crate) const NOPE: i64 = 512;

/// Of scores.
pub(crate) fn scale(asked: f64) -> f64 {
    if asked == 0.0 { 1.0 / 192f64.sqrt() } else { asked }
}

fn tile(call: &Checked<'_>) -> Tile {
    Tile::of(call.int("rows"), call.dim("tokens"), call.dim("batch"), call.dim("heads"), LATENT)
}

/// Words of a piece.
fn piece(tile: Tile) -> i64 {
    tile.rows * (NOPE + 1)
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    attention::check_rows(call.int("rows"), LATENT, wrong);
    attention::check_lengths(call, call.dim("tokens"), wrong);
    attention::check_aligned(call, &["q_nope", "q_pe", "ckv", "kpe", "o", "plan", "partial"], wrong);
    attention::check_pages(call, &["ckv", "kpe"], wrong);
    let tile = tile(call);
    let blocks = call.int("processors") * tile.blocks;
    let items = attention::most_items(call.dim("tokens"), call.dim("batch"), call.dim("heads"), tile);
    attention::check_plan(call.dim("plan_words"), blocks, items, 1, wrong);
    let (needed, got) = (2 * blocks * piece(tile), call.dim("partial_words"));
    if got < needed {
        wrong.add("partial", "shape", format!("at least {needed} words for these shapes"), got.to_string());
    }
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    // By the shared memory of a block: 227 KiB, 163 KiB, or 99 KiB. The host has as much as is asked for.
    let keys = match (tile(call).rows, target.arch().map(|arch| arch.0)) {
        (16, _) => 32,
        (_, None | Some(90..120)) => 64,
        (_, Some(80 | 87)) => 32,
        _ => 16,
    };
    choices.push(&[tile(call).rows as u32, keys]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [o, lse, ckv, kpe] = ["o", "lse", "ckv", "kpe"].map(|name| call.tensor(name));
    let [q_nope, q_pe] = ["q_nope", "q_pe"].map(|name| call.tensor(name));
    let (tile, tokens, heads) = (tile(call), call.dim("tokens"), call.dim("heads"));
    let layout = Layout::new(call.dim("plan_words"), call.int("processors") * tile.blocks, 1);
    let (page_multiply, page_shift) = divisor(call.dim("page_size"));
    let (group_multiply, group_shift) = divisor(heads);
    let params = pb_mla_attention_params {
        o: o.data,
        lse: lse.data,
        q_nope: q_nope.data,
        q_pe: q_pe.data,
        ckv: ckv.data,
        kpe: kpe.data,
        plan: call.tensor("plan").data,
        partial: call.tensor("partial").data,
        o_stride: bytes(o, 0),
        o_head_stride: bytes(o, 1),
        lse_stride: if call.given("lse") { bytes(lse, 0) } else { 0 },
        q_nope_stride: bytes(q_nope, 0),
        q_nope_head_stride: bytes(q_nope, 1),
        q_pe_stride: bytes(q_pe, 0),
        q_pe_head_stride: bytes(q_pe, 1),
        ckv_stride: bytes(ckv, 0) as u32,
        ckv_entry_stride: bytes(ckv, 1) as u32,
        kpe_stride: bytes(kpe, 0) as u32,
        kpe_entry_stride: bytes(kpe, 1) as u32,
        kv_indices: call.tensor("kv_indices").data,
        pages: call.dim("pages"),
        slots: call.dim("partial_words") / piece(tile),
        page_multiply,
        page_shift,
        group_multiply,
        group_shift,
        tokens: tokens as i32,
        page_size: call.dim("page_size") as i32,
        group: heads as i32,
        kv_heads: 1,
        causal: call.flag("causal").into(),
        scale_log2: scale(f64::from(call.scalar("sm_scale"))) as f32 * LOG2_E,
    };
    // As `kShared` in mla_attention.cuh.
    let (rows, keys, warps) = (tile.rows, i64::from(tactic.0[1]), tile.threads / 32);
    let stages = if keys == 16 { 1 } else { 2 };
    let floats = rows * (warps / (rows / 16) + 2);
    let shared = (rows + stages * keys) * LATENT * 2 + rows * keys.max(32) * 2 + floats * 4;
    Launch::new(Params::new(params), [layout.blocks as u32, 1, 1], tile.threads as u32).shared(shared as u32)
}
