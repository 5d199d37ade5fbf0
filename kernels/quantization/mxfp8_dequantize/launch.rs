//! Launcher of mxfp8_dequantize.

use super::quantization::{self, Deal};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_mxfp8_dequantize_params;

const BLOCK: i64 = 32;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    quantization::check_scales(call, call.dim("hidden"), BLOCK, wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    quantization::select(out, x, call.dim("hidden"), out.dtype.bytes() as i64, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, out, scale) = (call.tensor("x"), call.tensor("out"), call.tensor("scale"));
    let (rows, hidden, columns) = (call.dim("rows"), call.dim("hidden"), call.dim("scale_columns"));
    let deal = Deal::new(out.dtype, hidden, 1);
    let params = pb_mxfp8_dequantize_params {
        x: x.data,
        out: out.data,
        scale: scale.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        scale_stride: scale.stride(0),
        rows,
        hidden: hidden as i32,
        scale_columns: columns as i32,
        layout: call.int("layout") as i32,
        row_threads: deal.row_threads,
        block_rows: deal.block_rows,
        chunks: deal.chunks,
        down: deal.down,
    };
    deal.launch(Params::new(params), rows)
}
