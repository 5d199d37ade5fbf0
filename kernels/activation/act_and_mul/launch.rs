//! Launcher of act_and_mul.

use super::activation;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, divider};
use crate::params::pb_act_and_mul_params;

const BLOCK: u32 = 256;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let element = call.tensor("x").dtype.bytes() as u32;
    let widths: &[u32] = if element == 2 { &[16, 8, 2] } else { &[16, 4] };
    for width in widths {
        if activation::fits(call, u64::from(width / element)) {
            choices.push(&[*width]);
        }
    }
    // Single elements of a tensor are always aligned.
    choices.push(&[element]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, out) = (call.tensor("x"), call.tensor("out"));
    let [vec, ..] = tactic.0;
    let parts = call.dim("hidden") as u32 * x.dtype.bytes() as u32 / vec;
    let (magic, shift) = divider(parts);
    let params = pb_act_and_mul_params {
        x: x.data,
        out: out.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        rows: call.dim("rows"),
        hidden: call.dim("hidden") as i32,
        parts,
        magic,
        shift,
    };
    // Accesses of a thread, as in act_and_mul.cuh.
    let steps = match vec {
        16 => 2,
        8 => 4,
        _ => 8,
    };
    // Less than 2^31: each stands for at least 4 KB of out, but for rows of a few bytes, of which it takes 512 or more.
    let blocks = (call.dim("rows") as u64 * u64::from(parts)).div_ceil(u64::from(BLOCK * steps));
    Launch::new(Params::new(params), [blocks as u32, 1, 1], BLOCK)
}
