//! Launcher of fp8_quantize_per_block.

use super::quantization;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_fp8_quantize_per_block_params;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    quantization::select(x, out, call.dim("hidden"), x.dtype.bytes() as i64, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, out, scale) = (call.tensor("x"), call.tensor("out"), call.tensor("scale"));
    let (rows, hidden) = (call.dim("rows"), call.dim("hidden"));
    let params = pb_fp8_quantize_per_block_params {
        x: x.data,
        out: out.data,
        scale: scale.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        scale_stride: scale.stride(0),
        scale_column_stride: scale.stride(1),
        rows,
        hidden: hidden as i32,
        power_of_two: i32::from(call.flag("power_of_two")),
        eps: call.scalar("eps"),
    };
    let tiles = (rows as u64).div_ceil(128) * (hidden as u64).div_ceil(128);
    Launch::new(Params::new(params), [tiles as u32, 1, 1], 512)
}
