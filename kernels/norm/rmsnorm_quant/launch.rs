//! Launcher of rmsnorm_quant.

use super::norm;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_rmsnorm_quant_params;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    norm::select_peeling(call, &["x", "out"], &["weight"], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    let params = pb_rmsnorm_quant_params {
        x: x.data,
        weight: call.tensor("weight").data,
        out: out.data,
        scale: call.tensor("scale").data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        rows: call.dim("rows"),
        hidden: call.dim("hidden") as i32,
        eps: call.scalar("eps"),
        weight_bias: call.scalar("weight_bias"),
        scale_value: call.scalar("scale_value"),
    };
    norm::launch_peeling(Params::new(params), call, tactic)
}
