//! Launcher of concat_mla_k.

use super::page;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_concat_mla_k_params;

/// Heads that a thread takes at most, as in the kernel.
const HEADS: i64 = 4;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let per_token = (call.dim("heads") + HEADS - 1) / HEADS * (call.dim("nope_dim") + call.dim("rope_dim"));
    page::check_threads("k", call.dim("tokens"), per_token, wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let tensors = ["k", "k_nope", "k_rope"].map(|t| call.tensor(t));
    page::select(&tensors, &[call.dim("nope_dim"), call.dim("rope_dim")], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [k, nope, rope] = ["k", "k_nope", "k_rope"].map(|t| call.tensor(t));
    let (tokens, heads) = (call.dim("tokens"), call.dim("heads"));
    let count = |dim: &str| call.dim(dim) * k.dtype.bytes() as i64 / i64::from(tactic.0[0]);
    let (nope_units, units) = (count("nope_dim"), count("nope_dim") + count("rope_dim"));
    let groups = page::groups(heads, tokens * units, HEADS);
    let threads = (tokens * groups * units) as u32;
    let params = pb_concat_mla_k_params {
        k: k.data,
        k_nope: nope.data,
        k_rope: rope.data,
        k_stride: page::bytes(k, 0),
        k_head_stride: page::bytes(k, 1),
        nope_stride: page::bytes(nope, 0),
        nope_head_stride: page::bytes(nope, 1),
        rope_stride: page::bytes(rope, 0),
        threads,
        heads: heads as i32,
        groups: groups as i32,
        units: units as i32,
        nope_units: nope_units as i32,
    };
    page::launch(Params::new(params), threads)
}
