//! Launcher of fp8_quantize_per_tensor.

use super::quantization::{self, Deal};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_fp8_quantize_per_tensor_params;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    quantization::select(x, out, call.dim("hidden"), x.dtype.bytes() as i64, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, out, rows, hidden) = (call.tensor("x"), call.tensor("out"), call.dim("rows"), call.dim("hidden"));
    let deal = Deal::new(x.dtype, hidden, 1);
    let params = pb_fp8_quantize_per_tensor_params {
        x: x.data,
        scale: call.tensor("scale").data,
        out: out.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        rows,
        hidden: hidden as i32,
        row_threads: deal.row_threads,
        block_rows: deal.block_rows,
        chunks: deal.chunks,
        down: deal.down,
    };
    deal.launch(Params::new(params), rows)
}
