//! Launcher of layernorm_quant.

use super::norm;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_layernorm_quant_params;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    norm::select_peeling(call, &["x", "out"], &["weight", "bias"], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    let params = pb_layernorm_quant_params {
        x: x.data,
        weight: call.tensor("weight").data,
        bias: call.tensor("bias").data,
        out: out.data,
        scale: call.tensor("scale").data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        rows: call.dim("rows"),
        hidden: call.dim("hidden") as i32,
        eps: call.scalar("eps"),
        scale_value: call.scalar("scale_value"),
    };
    norm::launch_peeling(Params::new(params), call, tactic)
}
