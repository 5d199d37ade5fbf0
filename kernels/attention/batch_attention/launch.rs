//! Launcher of batch_attention.

use super::attention::{self, Layout, Tile, bytes, divisor};
use super::rope::powers;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_batch_attention_params;
use std::f32::consts::LOG2_E;

/// Buffers for keys and values, as in batch_attention.cuh.
const STAGES: i64 = 2;

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
    attention::check_aligned(call, &["q", "k", "v", "o", "plan", "partial"], wrong);
    attention::check_pages(call, &["k", "v"], wrong);
    let (plain, modified) = (call.int("score") == 0, call.int("score") == 1);
    let given = |name: &str| call.given(name);
    let asked = |name: &str| call.scalar(name) != 0.0;
    let only = [
        ("mask", given("mask")),
        ("alibi_slopes", given("alibi_slopes")),
        ("logits_soft_cap", asked("logits_soft_cap")),
    ];
    for (name, _) in only.iter().filter(|(_, is)| *is && !modified) {
        wrong.add(name, "presence", "none but with score = modified", "one");
    }
    if asked("rope_theta") && plain {
        wrong.add("rope_theta", "presence", "0 with plain scores", "a rotary embedding; score = modified takes it");
    }
    if given("mask") != given("mask_indptr") {
        wrong.add("mask_indptr", "presence", "one with mask, and only then", "the other");
    }
    if asked("rope_theta") && call.tensor("k").dtype.bytes() == 1 {
        wrong.add("rope_theta", "value", "0 with 8-bit keys, which have no room for turned ones", "a rotary embedding");
    }
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

/// The tactic `path`.
const PORTABLE: u32 = 0;
const HOPPER: u32 = 1;

/// Threads and dynamic shared memory of the other path, as `HopperTile` in hopper_attention.cuh has it: queries, two
/// stages of 128 keys and values, three tables.
const HOPPER_THREADS: u32 = 384;
const HOPPER_SHARED: u32 = 1024 + 128 * 256 + 2 * 2 * 128 * 256 + 3 * 128 * 16;

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let rows = tile(call).rows as u32;
    let sizes = [call.dim("qk_dim"), call.dim("vo_dim")];
    let plain = call.int("score") == 0 && sizes == [128, 128] && call.tensor("k").dtype.bytes() == 2;
    choices.push(&[rows, PORTABLE]);
    // After all others: it is offered to `parbake tune`, and not chosen before it has been measured on a GPU.
    if rows == 128 && plain && target == Target::SM_90A {
        choices.push(&[rows, HOPPER]);
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [o, lse, q, k, v] = ["o", "lse", "q", "k", "v"].map(|name| call.tensor(name));
    let (tile, kv_heads, tokens) = (tile(call), call.dim("kv_heads"), call.dim("tokens"));
    let (qk_dim, vo_dim) = (call.dim("qk_dim"), call.dim("vo_dim"));
    let layout = Layout::new(call.dim("plan_words"), call.int("processors") * tile.blocks, kv_heads);
    let (page_multiply, page_shift) = divisor(call.dim("page_size"));
    let (group_multiply, group_shift) = divisor(group(call));
    let (cap, theta) = (call.scalar("logits_soft_cap"), f64::from(call.scalar("rope_theta")));
    let step = theta.powf(-2.0 / qk_dim as f64);
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
        kv_indices: call.tensor("kv_indices").data,
        sinks: call.tensor("sinks").data,
        kv_pages: call.dim("kv_pages"),
        pages: call.dim("pages"),
        slots: call.dim("partial_words") / piece(call, tile),
        page_multiply,
        page_shift,
        group_multiply,
        group_shift,
        tokens: tokens as i32,
        page_size: call.dim("page_size") as i32,
        group: group(call) as i32,
        kv_heads: kv_heads as i32,
        causal: call.flag("causal").into(),
        window: call.int("window_left") as i32,
        scale_log2: scale * LOG2_E,
        v_scale: call.scalar("v_scale"),
        mask: call.tensor("mask").data,
        mask_indptr: call.tensor("mask_indptr").data,
        alibi_slopes: call.tensor("alibi_slopes").data,
        rotate: i32::from(theta != 0.0),
        cap_in: if cap == 0.0 { 0.0 } else { 2.0 * scale * LOG2_E / cap },
        cap_out: cap * LOG2_E,
        coarse: powers(1.0 / f64::from(call.scalar("rope_scale")), step.powi(16)),
        fine: powers(1.0, step),
        user: call.values(),
    };
    if tactic.0[1] == HOPPER {
        let grid = [layout.blocks as u32, 1, 1];
        return Launch::new(Params::new(params), grid, HOPPER_THREADS).shared(HOPPER_SHARED);
    }
    let sets = if tile.rows == 16 { tile.threads / 32 } else { 1 };
    let keys = tile.keys / sets * (qk_dim + vo_dim) * k.dtype.bytes() as i64;
    // Queries, buffers, and two tables of sixteen bytes a key.
    let shared = tile.rows * qk_dim * 2 + sets * STAGES * keys + 2 * 16 * tile.keys;
    Launch::new(Params::new(params), [layout.blocks as u32, 1, 1], tile.threads as u32).shared(shared as u32)
}
