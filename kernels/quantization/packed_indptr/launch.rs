//! Launcher of packed_indptr.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_packed_indptr_params;

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[]);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let params = pb_packed_indptr_params {
        indptr: call.tensor("indptr").data,
        out: call.tensor("out").data,
        batch: call.dim("batch"),
    };
    Launch::new(Params::new(params), [1, 1, 1], 1024)
}
