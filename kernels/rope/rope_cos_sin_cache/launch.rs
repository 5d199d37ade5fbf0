//! Launcher of rope_cos_sin_cache.

use super::rope;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_rope_cos_sin_cache_params;

/// Heads that a thread takes at most, as in rotate.cuh.
const HEADS: i64 = 4;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let (head_dim, rotary_dim) = (call.dim("head_dim"), call.dim("rotary_dim"));
    if rotary_dim > head_dim || rotary_dim % 2 != 0 {
        let expected = format!("rotary_dim an even number up to head_dim = {head_dim}");
        wrong.add("cos_sin_cache", "shape", expected, rotary_dim.to_string());
    }
    let heads = call.dim("q_heads") + call.dim("kv_heads");
    rope::check_threads(call, "q", (heads + HEADS - 1) / HEADS * ((head_dim + 1) / 2), wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let element = call.tensor("q").dtype.bytes();
    let names = ["q", "k", "q_out", "k_out", "cos_sin_cache"];
    let aligned = names.iter().all(|t| rope::aligned(call.tensor(t), 16));
    let whole = |columns: i64| columns * element as i64 % i64::from(rope::VECTOR) == 0;
    let half = call.dim("rotary_dim") / 2;
    // The sines begin behind the cosines.
    let vectors = aligned && whole(half) && half % 4 == 0 && whole(call.dim("head_dim"));
    rope::select(element, vectors, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (q, k, q_out, k_out) = (call.tensor("q"), call.tensor("k"), call.tensor("q_out"), call.tensor("k_out"));
    let (tokens, head_dim, rotary_dim) = (call.dim("tokens"), call.dim("head_dim"), call.dim("rotary_dim"));
    let heads = call.dim("q_heads") + call.dim("kv_heads");
    let lanes = i64::from(tactic.0[0]) / q.dtype.bytes() as i64;
    let turning = rotary_dim / 2 / lanes;
    // In place, the other columns are there already.
    let in_place = q.data == q_out.data && (k.is_empty() || k.data == k_out.data);
    let copying = if in_place { 0 } else { (head_dim - rotary_dim + 2 * lanes - 1) / (2 * lanes) };
    let units = turning + copying;
    let groups = rope::groups(tokens, heads, units, HEADS);
    let threads = (tokens * groups * units) as u32;
    let cache = call.tensor("cos_sin_cache");
    let params = pb_rope_cos_sin_cache_params {
        q: q.data,
        k: k.data,
        q_out: q_out.data,
        k_out: k_out.data,
        positions: call.tensor("positions").data,
        cache: cache.data,
        q_stride: q.stride(0),
        q_head_stride: q.stride(1),
        k_stride: k.stride(0),
        k_head_stride: k.stride(1),
        q_out_stride: q_out.stride(0),
        q_out_head_stride: q_out.stride(1),
        k_out_stride: k_out.stride(0),
        k_out_head_stride: k_out.stride(1),
        cache_stride: cache.stride(0),
        max_position: call.dim("max_position"),
        threads,
        q_heads: call.dim("q_heads") as i32,
        heads: heads as i32,
        head_dim: head_dim as i32,
        rotary_dim: rotary_dim as i32,
        interleave: call.flag("interleave").into(),
        groups: groups as i32,
        units: units as i32,
        turning: turning as i32,
    };
    rope::launch(Params::new(params), threads)
}
