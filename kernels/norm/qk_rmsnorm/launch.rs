//! Launcher of qk_rmsnorm.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_qk_rmsnorm_params;

const BLOCK: u32 = 128;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let heads = call.dim("q_heads") + call.dim("kv_heads");
    if call.dim("tokens") > (1 << 34) / heads {
        wrong.add("q", "shape", format!("at most {} tokens of {heads} heads", (1_i64 << 34) / heads), "more");
    }
}

/// As many heads to a block as make four accesses of each thread, as kernels/norm/norm.rs found to be fastest.
pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let element = call.tensor("q").dtype.bytes() as u64;
    let bytes = call.dim("head_dim") as u64 * element;
    let rows = |name: &&str| {
        let tensor = call.tensor(name);
        let step = |i: usize| if tensor.shape()[i] > 1 { tensor.stride(i) as u64 * element } else { 0 };
        (tensor.data as u64 | step(0) | step(1)).is_multiple_of(16)
    };
    let vector = |name: &&str| (call.tensor(name).data as u64).is_multiple_of(16);
    if bytes.is_multiple_of(16) && ["q", "k"].iter().all(rows) && ["q_weight", "k_weight"].iter().all(vector) {
        let best = match bytes {
            ..=256 => 32,
            257..=512 => 16,
            _ => 8,
        };
        [best, 32, 16, 8].iter().for_each(|rows| choices.push(&[BLOCK, *rows, 0]));
    }
    choices.push(&[BLOCK, 8, 1]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (q, k) = (call.tensor("q"), call.tensor("k"));
    let (q_heads, kv_heads) = (call.dim("q_heads"), call.dim("kv_heads"));
    let params = pb_qk_rmsnorm_params {
        q: q.data,
        k: k.data,
        q_weight: call.tensor("q_weight").data,
        k_weight: call.tensor("k_weight").data,
        q_token_stride: q.stride(0),
        q_head_stride: q.stride(1),
        k_token_stride: k.stride(0),
        k_head_stride: k.stride(1),
        tokens: call.dim("tokens"),
        q_heads: q_heads as i32,
        kv_heads: kv_heads as i32,
        head_dim: call.dim("head_dim") as i32,
        eps: call.scalar("eps"),
        weight_bias: call.scalar("weight_bias"),
    };
    let [block, rows, ..] = tactic.0;
    let blocks = (call.dim("tokens") * (q_heads + kv_heads)) as u64;
    Launch::new(Params::new(params), [blocks.div_ceil(u64::from(rows)) as u32, 1, 1], block)
}
