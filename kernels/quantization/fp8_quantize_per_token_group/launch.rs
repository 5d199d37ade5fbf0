//! Launcher of fp8_quantize_per_token_group.

use super::quantization::{self, Deal};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_fp8_quantize_per_token_group_params;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    quantization::select(x, out, call.dim("hidden"), x.dtype.bytes() as i64, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, out, scale) = (call.tensor("x"), call.tensor("out"), call.tensor("scale"));
    let (rows, hidden) = (call.dim("rows"), call.dim("hidden"));
    let deal = Deal::new(x.dtype, hidden, 128);
    let params = pb_fp8_quantize_per_token_group_params {
        x: x.data,
        out: out.data,
        scale: scale.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        scale_stride: scale.stride(0),
        scale_group_stride: scale.stride(1),
        rows,
        hidden: hidden as i32,
        power_of_two: i32::from(call.flag("power_of_two") || scale.dtype.bytes() == 1),
        eps: call.scalar("eps"),
        row_threads: deal.row_threads,
        block_rows: deal.block_rows,
        chunks: deal.chunks,
        down: deal.down,
    };
    deal.launch(Params::new(params), rows)
}
