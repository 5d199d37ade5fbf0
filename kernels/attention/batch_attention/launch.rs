//! Launcher of batch_attention.

use super::attention::{self, Layout, Tile, bytes, divisor};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_batch_attention_params;
use std::f32::consts::LOG2_E;

fn group(call: &Checked<'_>) -> i64 {
    call.dim("qo_heads") / call.dim("kv_heads")
}

fn tile(call: &Checked<'_>) -> Tile {
    Tile::of(call.int("rows"), call.dim("tokens"), call.dim("batch"), group(call), call.dim("qk_dim"))
}

/// Words of a piece.
fn piece(call: &Checked<'_>, tile: Tile) -> i64 {
    tile.rows * (call.dim("vo_dim") + 1)
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let kv_heads = call.dim("kv_heads");
    attention::check_rows(call.int("rows"), call.dim("qk_dim"), wrong);
    attention::check_lengths(call, call.dim("tokens"), wrong);
    attention::check_aligned(call, &["q", "k", "v", "o", "partial"], wrong);
    attention::check_pages(call, &["k", "v"], wrong);
    let Some(group) = attention::group(call.dim("qo_heads"), kv_heads, wrong) else { return };
    let tile = tile(call);
    let blocks = call.int("processors") * tile.blocks;
    let items = attention::most_items(call.dim("tokens"), call.dim("batch"), group, tile);
    attention::check_plan(call.dim("plan_words"), blocks, items, kv_heads, wrong);
    let (needed, got) = (2 * blocks * piece(call, tile), call.dim("partial_words"));
    if got < needed {
        wrong.add("partial", "shape", format!("at least {needed} words for these shapes"), got.to_string());
    }
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let tile = tile(call);
    // A third buffer fits, with a second block beside it, where a multiprocessor has 227 KB.
    let roomy = target.arch().is_some_and(|a| (90..120).contains(&a.0));
    if tile.rows == 16 && call.dim("qk_dim") <= 128 && roomy {
        choices.push(&[16, 3]);
    }
    choices.push(&[tile.rows as u32, 2]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [o, lse, q, k, v] = ["o", "lse", "q", "k", "v"].map(|name| call.tensor(name));
    let (tile, kv_heads, tokens) = (tile(call), call.dim("kv_heads"), call.dim("tokens"));
    let (qk_dim, vo_dim) = (call.dim("qk_dim"), call.dim("vo_dim"));
    let layout = Layout::new(call.dim("plan_words"), call.int("processors") * tile.blocks, kv_heads);
    let (page_multiply, page_shift) = divisor(call.dim("page_size"));
    let (group_multiply, group_shift) = divisor(group(call));
    let scale = match call.scalar("sm_scale") {
        0.0 => 1.0 / (qk_dim as f32).sqrt(),
        some => some,
    };
    let params = pb_batch_attention_params {
        o: o.data,
        lse: lse.data,
        q: q.data,
        k: k.data,
        v: v.data,
        plan: call.tensor("plan").data,
        partial: call.tensor("partial").data,
        o_stride: bytes(o, 0),
        o_head_stride: bytes(o, 1),
        lse_stride: if call.given("lse") { bytes(lse, 0) } else { 0 },
        q_stride: bytes(q, 0),
        q_head_stride: bytes(q, 1),
        k_head_stride: bytes(k, 2),
        v_head_stride: bytes(v, 2),
        k_stride: bytes(k, 0) as u32,
        k_entry_stride: bytes(k, 1) as u32,
        v_stride: bytes(v, 0) as u32,
        v_entry_stride: bytes(v, 1) as u32,
        qo_indptr: call.tensor("qo_indptr").data,
        kv_indptr: call.tensor("kv_indptr").data,
        kv_indices: call.tensor("kv_indices").data,
        kv_last_page_len: call.tensor("kv_last_page_len").data,
        sinks: call.tensor("sinks").data,
        pages: call.dim("pages"),
        slots: call.dim("partial_words") / piece(call, tile),
        page_multiply,
        page_shift,
        group_multiply,
        group_shift,
        tokens: tokens as i32,
        qo_len: (tokens / call.dim("batch").max(1)) as i32,
        page_size: call.dim("page_size") as i32,
        group: group(call) as i32,
        kv_heads: kv_heads as i32,
        causal: call.flag("causal").into(),
        window: call.int("window_left") as i32,
        scale_log2: scale * LOG2_E,
        v_scale: call.scalar("v_scale"),
    };
    let sets = if tile.rows == 16 { tile.threads / 32 } else { 1 };
    let keys = tile.keys / sets * (qk_dim + vo_dim) * k.dtype.bytes() as i64;
    let shared = tile.rows * qk_dim * 2 + sets * i64::from(tactic.0[1]) * keys;
    Launch::new(Params::new(params), [layout.blocks as u32, 1, 1], tile.threads as u32).shared(shared as u32)
}
