//! Launcher of get_seq_lens.

use super::page;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_get_seq_lens_params;

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[]);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let params = pb_get_seq_lens_params {
        kv_indptr: call.tensor("kv_indptr").data,
        kv_last_page_len: call.tensor("kv_last_page_len").data,
        seq_lens: call.tensor("seq_lens").data,
        batch: call.dim("batch") as i32,
        page_size: call.int("page_size") as i32,
    };
    page::launch(Params::new(params), call.dim("batch") as u32)
}
