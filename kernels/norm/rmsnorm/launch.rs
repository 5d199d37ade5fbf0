//! Launcher of rmsnorm.

use super::norm;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_rmsnorm_params;

/// Vectors that a thread of a block with one row keeps, as in the kernel.
const HELD: u32 = 4;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    norm::select(call, "x", "out", HELD, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    let params = pb_rmsnorm_params {
        x: x.data,
        weight: call.tensor("weight").data,
        out: out.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        rows: call.dim("rows"),
        hidden: call.dim("hidden") as i32,
        eps: call.scalar("eps"),
        weight_bias: call.scalar("weight_bias"),
    };
    norm::launch(Params::new(params), call, tactic, HELD)
}
