//! Launcher of segment_packbits.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_segment_packbits_params;

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[]);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let packed = call.dim("packed");
    let params = pb_segment_packbits_params {
        x: call.tensor("x").data,
        indptr: call.tensor("indptr").data,
        out_indptr: call.tensor("out_indptr").data,
        out: call.tensor("out").data,
        n: call.dim("n"),
        batch: call.dim("batch"),
        packed,
        little: i32::from(call.flag("little")),
    };
    Launch::new(Params::new(params), [(packed as u64).div_ceil(256) as u32, 1, 1], 256)
}
