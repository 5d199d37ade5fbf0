//! Launcher of append_paged_mla_kv_cache.

use super::page;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_append_paged_mla_kv_cache_params;

/// Tokens that a thread takes at most, as in the kernel.
const TOKENS: i64 = 4;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    page::check_threads("ckv", call.dim("tokens"), call.dim("ckv_dim") + call.dim("kpe_dim"), wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let tensors = ["ckv", "kpe", "ckv_cache", "kpe_cache"].map(|t| call.tensor(t));
    page::select(&tensors, &[call.dim("ckv_dim"), call.dim("kpe_dim")], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [ckv, kpe, ckv_cache, kpe_cache] = ["ckv", "kpe", "ckv_cache", "kpe_cache"].map(|t| call.tensor(t));
    let tokens = call.dim("tokens");
    let units = |dim: &str| call.dim(dim) * ckv.dtype.bytes() as i64 / i64::from(tactic.0[0]);
    let (ckv_units, all) = (units("ckv_dim"), units("ckv_dim") + units("kpe_dim"));
    let rows = page::groups(tokens, all, TOKENS);
    let threads = (rows * all) as u32;
    let params = pb_append_paged_mla_kv_cache_params {
        ckv: ckv.data,
        kpe: kpe.data,
        ckv_cache: ckv_cache.data,
        kpe_cache: kpe_cache.data,
        ckv_stride: page::bytes(ckv, 0),
        kpe_stride: page::bytes(kpe, 0),
        ckv_page_stride: page::bytes(ckv_cache, 0),
        ckv_entry_stride: page::bytes(ckv_cache, 1),
        kpe_page_stride: page::bytes(kpe_cache, 0),
        kpe_entry_stride: page::bytes(kpe_cache, 1),
        batch_indices: call.tensor("batch_indices").data,
        positions: call.tensor("positions").data,
        kv_indices: call.tensor("kv_indices").data,
        kv_indptr: call.tensor("kv_indptr").data,
        kv_pages: call.dim("kv_pages"),
        tokens: tokens as u32,
        threads,
        rows: rows as u32,
        batch: call.dim("batch") as i32,
        pages: call.dim("pages") as i32,
        page_size: call.dim("page_size") as i32,
        units: all as i32,
        ckv_units: ckv_units as i32,
    };
    page::launch(Params::new(params), threads)
}
