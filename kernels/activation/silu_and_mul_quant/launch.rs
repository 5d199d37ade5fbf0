//! Launcher of silu_and_mul_quant.

use super::activation;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong, divider};
use crate::params::pb_silu_and_mul_quant_params;

const BLOCK: u32 = 128;
/// Columns that share a scale.
const GROUP: u32 = 128;

fn groups(call: &Checked<'_>) -> u64 {
    (call.dim("hidden") as u64).div_ceil(u64::from(GROUP))
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let most = (1 << 32) / groups(call);
    if call.dim("rows") as u64 > most {
        wrong.add("x", "shape", format!("at most {most} rows of {} columns", 2 * call.dim("hidden")), "more");
    }
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    for width in [16, 8] {
        if activation::fits(call, width / 2) {
            choices.push(&[width as u32]);
        }
    }
    choices.push(&[2]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, out, scale) = (call.tensor("x"), call.tensor("out"), call.tensor("scale"));
    let [vec, ..] = tactic.0;
    let groups = groups(call) as u32;
    let (magic, shift) = divider(groups);
    let params = pb_silu_and_mul_quant_params {
        x: x.data,
        out: out.data,
        scale: scale.data,
        x_stride: x.stride(0),
        out_stride: out.stride(0),
        scale_row_stride: scale.stride(0),
        scale_group_stride: scale.stride(1),
        rows: call.dim("rows"),
        hidden: call.dim("hidden") as i32,
        groups,
        magic,
        shift,
        eps: call.scalar("eps"),
    };
    // Threads of a team, which takes a group, as in silu_and_mul_quant.cuh.
    let team = (GROUP / (vec / x.dtype.bytes() as u32)).min(32);
    let blocks = (call.dim("rows") as u64 * u64::from(groups)).div_ceil(u64::from(BLOCK / team));
    Launch::new(Params::new(params), [blocks as u32, 1, 1], BLOCK)
}
