//! Launcher of rope_quantize.

use super::rope;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_rope_quantize_params;

/// Heads that a thread takes at most, as in quantize.cuh.
const HEADS: i64 = 2;
/// The parts of a token, in the order of the kernel: what is read, and where it goes.
const FROM: [&str; 4] = ["q_rope", "k_rope", "q_nope", "k_nope"];
const TO: [&str; 4] = ["q_rope_out", "k_rope_out", "q_nope_out", "k_nope_out"];

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    if call.dim("rotary_dim") % 2 != 0 {
        wrong.add("q_rope", "shape", "rotary_dim an even number", call.dim("rotary_dim").to_string());
    }
    for (from, to) in FROM.into_iter().zip(TO).filter(|(from, to)| call.given(from) != call.given(to)) {
        let (missing, given) = if call.given(from) { (to, from) } else { (from, to) };
        wrong.add(missing, "presence", format!("a tensor, as of `{given}`"), "nothing");
    }
    let given = FROM.iter().map(|t| call.tensor(t)).filter(|t| !t.is_empty());
    let per_token = given.map(|t| (t.shape()[1] + HEADS - 1) / HEADS * ((t.shape()[2] + 1) / 2)).sum();
    rope::check_threads(call, "q_rope", per_token, wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let element = call.tensor("q_rope").dtype.bytes();
    let lanes = u64::from(rope::VECTOR) / element as u64;
    let read = FROM.iter().chain(&["cos_sin_cache"]).all(|t| rope::aligned(call.tensor(t), 16));
    let written = TO.iter().all(|t| rope::aligned(call.tensor(t), lanes));
    let whole = |columns: i64| columns % lanes as i64 == 0;
    let parts = FROM.iter().map(|t| call.tensor(t)).filter(|t| !t.is_empty()).all(|t| whole(t.shape()[2]));
    rope::select(element, read && written && parts && whole(call.dim("rotary_dim") / 2), choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let tokens = call.dim("tokens");
    let lanes = i64::from(tactic.0[0]) / call.tensor("q_rope").dtype.bytes() as i64;
    let cache = call.tensor("cos_sin_cache");
    let mut params = pb_rope_quantize_params {
        from: FROM.map(|t| call.tensor(t).data.cast_const()),
        to: TO.map(|t| call.tensor(t).data),
        from_stride: FROM.map(|t| call.tensor(t).stride(0)),
        from_head_stride: FROM.map(|t| call.tensor(t).stride(1)),
        to_stride: TO.map(|t| call.tensor(t).stride(0)),
        to_head_stride: TO.map(|t| call.tensor(t).stride(1)),
        pos_ids: call.tensor("pos_ids").data,
        cache: cache.data,
        cache_stride: cache.stride(0),
        max_position: call.dim("max_position"),
        first: [0; 4],
        units: [1; 4],
        groups: [0; 4],
        heads: [0; 4],
        columns: [0; 4],
        threads: 0,
        items: 0,
        rotary_dim: call.dim("rotary_dim") as i32,
        interleave: call.flag("interleave").into(),
        scale_q: call.scalar("quant_scale_q"),
        scale_kv: call.scalar("quant_scale_kv"),
    };
    let mut items = 0;
    for (i, part) in FROM.iter().map(|t| call.tensor(t)).enumerate() {
        params.first[i] = items;
        if part.is_empty() {
            continue;
        }
        let (heads, columns) = (part.shape()[1], part.shape()[2]);
        let units = (columns + 2 * lanes - 1) / (2 * lanes);
        let groups = rope::groups(tokens, heads, units, HEADS);
        params.units[i] = units as i32;
        params.groups[i] = groups as i32;
        params.heads[i] = heads as i32;
        params.columns[i] = columns as i32;
        items += (units * groups) as i32;
    }
    params.items = items;
    params.threads = tokens as u32 * items as u32;
    rope::launch(Params::new(params), params.threads)
}
