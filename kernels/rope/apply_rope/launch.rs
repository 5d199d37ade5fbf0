//! Launcher of apply_rope.

use super::rope::{self, powers};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_apply_rope_params;
use std::f64::consts::PI;

/// Heads that a thread takes at most, as in rotate.cuh.
const HEADS: i64 = 4;

/// Columns that are turned.
fn rotary_dim(call: &Checked<'_>) -> i64 {
    match call.int("rotary_dim") {
        0 => call.dim("head_dim"),
        some => some,
    }
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let (head_dim, rotary_dim) = (call.dim("head_dim"), rotary_dim(call));
    if rotary_dim > head_dim || rotary_dim % 2 != 0 {
        let expected = format!("an even number up to head_dim = {head_dim}");
        wrong.add("rotary_dim", "value", expected, rotary_dim.to_string());
    }
    let given = |name| call.given(name);
    if given("pos_ids") == given("indptr") || given("indptr") != given("offsets") {
        let names = ["pos_ids", "indptr", "offsets"].into_iter().filter(|name| call.given(name)).collect::<Vec<_>>();
        let got = if names.is_empty() { "none of them".to_owned() } else { names.join(", ") };
        wrong.add("pos_ids", "presence", "pos_ids, or indptr and offsets", got);
    }
    let (low, high) = (call.scalar("low_freq_factor"), call.scalar("high_freq_factor"));
    if call.scalar("old_context_len") > 0.0 && low >= high {
        wrong.add("high_freq_factor", "value", format!("more than low_freq_factor = {low}"), high.to_string());
    }
    let heads = call.dim("q_heads") + call.dim("kv_heads");
    rope::check_threads(call, "q", (heads + HEADS - 1) / HEADS * ((head_dim + 1) / 2), wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let element = call.tensor("q").dtype.bytes();
    let aligned = ["q", "k", "q_out", "k_out"].iter().all(|t| rope::aligned(call.tensor(t), 16));
    let whole = |columns: i64| columns * element as i64 % i64::from(rope::VECTOR) == 0;
    let vectors = aligned && whole(rotary_dim(call) / 2) && whole(call.dim("head_dim"));
    rope::select(element, vectors, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (q, k, q_out, k_out) = (call.tensor("q"), call.tensor("k"), call.tensor("q_out"), call.tensor("k_out"));
    let (tokens, head_dim, rotary_dim) = (call.dim("tokens"), call.dim("head_dim"), rotary_dim(call));
    let heads = call.dim("q_heads") + call.dim("kv_heads");
    let lanes = i64::from(tactic.0[0]) / q.dtype.bytes() as i64;
    let turning = rotary_dim / 2 / lanes;
    // In place, the other columns are there already.
    let in_place = q.data == q_out.data && (k.is_empty() || k.data == k_out.data);
    let copying = if in_place { 0 } else { (head_dim - rotary_dim + 2 * lanes - 1) / (2 * lanes) };
    let units = turning + copying;
    let groups = rope::groups(tokens, heads, units, HEADS);
    let threads = (tokens * groups * units) as u32;

    let (theta, scale) = (f64::from(call.scalar("rope_theta")), f64::from(call.scalar("rope_scale")));
    let (low, high) = (f64::from(call.scalar("low_freq_factor")), f64::from(call.scalar("high_freq_factor")));
    let old = f64::from(call.scalar("old_context_len"));
    let scaled = old > 0.0;
    let step = theta.powf(-2.0 / rotary_dim as f64);
    let params = pb_apply_rope_params {
        q: q.data,
        k: k.data,
        q_out: q_out.data,
        k_out: k_out.data,
        pos_ids: call.tensor("pos_ids").data,
        indptr: call.tensor("indptr").data,
        offsets: call.tensor("offsets").data,
        q_stride: q.stride(0),
        q_head_stride: q.stride(1),
        k_stride: k.stride(0),
        k_head_stride: k.stride(1),
        q_out_stride: q_out.stride(0),
        q_out_head_stride: q_out.stride(1),
        k_out_stride: k_out.stride(0),
        k_out_head_stride: k_out.stride(1),
        threads,
        batch: call.dim("batch") as i32,
        q_heads: call.dim("q_heads") as i32,
        heads: heads as i32,
        head_dim: head_dim as i32,
        rotary_dim: rotary_dim as i32,
        interleave: call.flag("interleave").into(),
        groups: groups as i32,
        units: units as i32,
        turning: turning as i32,
        smooth_slope: if scaled { (old / (2.0 * PI * (high - low))) as f32 } else { 0.0 },
        smooth_offset: if scaled { (-low / (high - low)) as f32 } else { 1.0 },
        slowest: if scaled { (1.0 / scale) as f32 } else { 1.0 },
        coarse: powers(if scaled { 1.0 } else { 1.0 / scale }, step.powi(16)),
        fine: powers(1.0, step),
    };
    rope::launch(Params::new(params), threads)
}
