//! Launcher of append_paged_kv_cache.

use super::page;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_append_paged_kv_cache_params;

/// Heads that a thread takes at most, as in the kernel.
const HEADS: i64 = 4;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let per_token = (call.dim("heads") + HEADS - 1) / HEADS * call.dim("head_dim");
    page::check_threads("key", call.dim("tokens"), per_token, wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let tensors = ["key", "value", "k_cache", "v_cache"].map(|t| call.tensor(t));
    page::select(&tensors, &[call.dim("head_dim")], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [key, value, k, v] = ["key", "value", "k_cache", "v_cache"].map(|t| call.tensor(t));
    let (tokens, heads) = (call.dim("tokens"), call.dim("heads"));
    let units = call.dim("head_dim") * key.dtype.bytes() as i64 / i64::from(tactic.0[0]);
    let groups = page::groups(heads, tokens * units, HEADS);
    let threads = (tokens * groups * units) as u32;
    let params = pb_append_paged_kv_cache_params {
        key: key.data,
        value: value.data,
        k_cache: k.data,
        v_cache: v.data,
        key_stride: page::bytes(key, 0),
        key_head_stride: page::bytes(key, 1),
        value_stride: page::bytes(value, 0),
        value_head_stride: page::bytes(value, 1),
        k_stride: page::bytes(k, 0),
        k_entry_stride: page::bytes(k, 1),
        k_head_stride: page::bytes(k, 2),
        v_stride: page::bytes(v, 0),
        v_entry_stride: page::bytes(v, 1),
        v_head_stride: page::bytes(v, 2),
        batch_indices: call.tensor("batch_indices").data,
        positions: call.tensor("positions").data,
        kv_indices: call.tensor("kv_indices").data,
        kv_indptr: call.tensor("kv_indptr").data,
        kv_pages: call.dim("kv_pages"),
        threads,
        batch: call.dim("batch") as i32,
        pages: call.dim("pages") as i32,
        page_size: call.dim("page_size") as i32,
        heads: heads as i32,
        groups: groups as i32,
        units: units as i32,
    };
    page::launch(Params::new(params), threads)
}
