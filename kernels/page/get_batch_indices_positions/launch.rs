//! Launcher of get_batch_indices_positions.

use super::page;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_get_batch_indices_positions_params;

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[]);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let params = pb_get_batch_indices_positions_params {
        append_indptr: call.tensor("append_indptr").data,
        seq_lens: call.tensor("seq_lens").data,
        batch_indices: call.tensor("batch_indices").data,
        positions: call.tensor("positions").data,
        nnz: call.dim("nnz") as i32,
        batch: call.dim("batch") as i32,
    };
    page::launch(Params::new(params), call.dim("nnz") as u32)
}
