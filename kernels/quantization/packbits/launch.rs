//! Launcher of packbits.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_packbits_params;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    if call.tensor("x").alignment(16) == 16 && call.tensor("out").alignment(4) == 4 {
        choices.push(&[16]);
    }
    choices.push(&[1]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [vec, ..] = tactic.0;
    let n = call.dim("n");
    let params = pb_packbits_params {
        x: call.tensor("x").data,
        out: call.tensor("out").data,
        n,
        little: i32::from(call.flag("little")),
    };
    // A thread takes two vectors, or eight elements.
    let threads = (n as u64).div_ceil(if vec == 16 { 32 } else { 8 });
    Launch::new(Params::new(params), [threads.div_ceil(256) as u32, 1, 1], 256)
}
