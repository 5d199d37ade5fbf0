//! Launcher of fused_add_rmsnorm.

use super::norm;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_fused_add_rmsnorm_params;

/// Vectors that a thread of a block with one row keeps, as in the kernel.
const HELD: u32 = 2;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    norm::select(call, "x", "residual", HELD, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, residual) = (call.tensor("x"), call.tensor("residual"));
    let params = pb_fused_add_rmsnorm_params {
        x: x.data,
        residual: residual.data,
        weight: call.tensor("weight").data,
        x_stride: x.stride(0),
        residual_stride: residual.stride(0),
        rows: call.dim("rows"),
        hidden: call.dim("hidden") as i32,
        eps: call.scalar("eps"),
        weight_bias: call.scalar("weight_bias"),
    };
    norm::launch(Params::new(params), call, tactic, HELD)
}
