//! Launcher of fp4_quantize.

use super::quantization::{self, Deal};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_fp4_quantize_params;

/// Columns that share a scale.
fn block(call: &Checked<'_>) -> i64 {
    if call.int("format") == 0 { 16 } else { 32 }
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    quantization::check_scales(call, call.dim("hidden"), block(call), wrong);
    if call.int("format") == 1 && call.given("global_scale") {
        wrong.add("global_scale", "presence", "none: MXFP4 has no such factor", "a tensor");
    }
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    quantization::select(x, out, call.dim("hidden"), 2 * x.dtype.bytes() as i64, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, out, scale) = (call.tensor("x"), call.tensor("out"), call.tensor("scale"));
    let (rows, hidden, columns) = (call.dim("rows"), call.dim("hidden"), call.dim("scale_columns"));
    // Scales of the padding are written too.
    let deal = Deal::new(x.dtype, columns * block(call), block(call));
    let params = pb_fp4_quantize_params {
        global_scale: call.tensor("global_scale").data,
        x: x.data,
        out: out.data,
        scale: scale.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        scale_stride: scale.stride(0),
        rows,
        scale_rows: call.dim("scale_rows"),
        hidden: hidden as i32,
        scale_columns: columns as i32,
        layout: call.int("layout") as i32,
        row_threads: deal.row_threads,
        block_rows: deal.block_rows,
        chunks: deal.chunks,
        down: deal.down,
    };
    deal.launch(Params::new(params), call.dim("scale_rows"))
}
