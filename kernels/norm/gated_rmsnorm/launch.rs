//! Launcher of gated_rmsnorm, whose kernel is in Triton.

use crate::binding::{Checked, Choices, Launch, Tactic, Target, Tensor};
use crate::params::pb_gated_rmsnorm_params;

/// Bytes of a full vector.
const VECTOR: u32 = 16;
/// Elements that a warp takes at a time, as in gated_rmsnorm.py.tera.
const WARP: i64 = 256;
/// Dynamic shared memory, as there: at least what the sum over a block needs.
const SHARED: u32 = 1024;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let element = call.tensor("x").dtype.bytes() as u32;
    let hidden = call.dim("hidden");
    let full = |tensor: &Tensor| {
        // The weight has one dimension, and its only stride is 1.
        let rows = tensor.shape().len() > 1 && tensor.shape()[0] > 1;
        let step = if rows { tensor.stride(0) } else { 0 };
        (tensor.data as u64).is_multiple_of(u64::from(VECTOR)) && step % i64::from(VECTOR / element) == 0
    };
    let vectors = hidden % i64::from(VECTOR / element) == 0
        && ["out", "x", "gate", "weight"].into_iter().all(|name| full(call.tensor(name)));
    // Any number of warps is legal for any row: the fewest that hold it come first.
    let best = [1, 4].into_iter().find(|warps| hidden <= i64::from(*warps) * WARP).unwrap_or(16);
    for warps in [best, 1, 4, 16] {
        if vectors {
            choices.push(&[warps, VECTOR]);
        }
        choices.push(&[warps, element]);
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, gate, out) = (call.tensor("x"), call.tensor("gate"), call.tensor("out"));
    let [warps, ..] = tactic.0;
    let params = pb_gated_rmsnorm_params {
        x: x.data,
        gate: gate.data,
        weight: call.tensor("weight").data,
        out: out.data,
        x_stride: x.stride(0),
        gate_stride: gate.stride(0),
        out_stride: out.stride(0),
        hidden: call.dim("hidden") as i32,
        eps: call.scalar("eps"),
        global_scratch: std::ptr::null_mut(),
        profile_scratch: std::ptr::null_mut(),
    };
    Launch::plain(params, [call.dim("rows") as u32, 1, 1], warps * 32).shared(SHARED)
}
