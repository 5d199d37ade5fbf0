//! Launcher of fp8_quantize_per_token.

use super::quantization;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_fp8_quantize_per_token_params;

/// Most threads of a block that has one row.
const ROW_BLOCK: u32 = 512;
/// Vectors that a thread keeps, as in the kernel.
const HELD: u32 = 4;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let (x, out, hidden) = (call.tensor("x"), call.tensor("out"), call.dim("hidden"));
    let bytes = x.dtype.bytes() as i64;
    let vec = if quantization::whole(x, out, hidden, bytes) { 16 } else { 1 };
    // What a warp keeps in registers. The other way is right too, where only that is covered.
    let rows = if hidden * bytes <= 32 * 16 * i64::from(HELD) { [8, 1] } else { [1, 8] };
    for vec in [vec, 1] {
        choices.push(&[rows[0], vec]);
        choices.push(&[rows[1], vec]);
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [rows_each, ..] = tactic.0;
    let (x, out, scale) = (call.tensor("x"), call.tensor("out"), call.tensor("scale"));
    let (rows, hidden) = (call.dim("rows"), call.dim("hidden"));
    let params = pb_fp8_quantize_per_token_params {
        x: x.data,
        out: out.data,
        scale: scale.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        scale_stride: scale.stride(0),
        rows,
        hidden: hidden as i32,
        eps: call.scalar("eps"),
    };
    let vectors = (hidden as u32 * x.dtype.bytes() as u32).div_ceil(16);
    let threads = if rows_each == 1 { ROW_BLOCK.min(vectors.div_ceil(HELD).next_multiple_of(32)) } else { 256 };
    let blocks = (rows as u64).div_ceil(u64::from(rows_each));
    Launch::new(Params::new(params), [blocks as u32, 1, 1], threads)
}
