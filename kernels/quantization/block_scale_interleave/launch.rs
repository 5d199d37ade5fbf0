//! Launcher of block_scale_interleave.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_block_scale_interleave_params;

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[]);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, out, rows, columns) = (call.tensor("x"), call.tensor("out"), call.dim("rows"), call.dim("columns"));
    let words = out.shape().iter().product::<i64>() / 4;
    let params =
        pb_block_scale_interleave_params { x: x.data, out: out.data, x_stride: x.stride(0), rows, columns, words };
    Launch::new(Params::new(params), [(words as u64).div_ceil(256) as u32, 1, 1], 256)
}
