//! Launcher of top_k_mask_logits.

use super::sampling::Selection;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_top_k_mask_logits_params;

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    Selection::choose(call.tensor("logits"), target, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (logits, out) = (call.tensor("logits"), call.tensor("masked_logits"));
    let selection = Selection::new(logits, tactic, 0, false);
    let params = pb_top_k_mask_logits_params {
        x: logits.data,
        out: out.data,
        of: call.tensor("top_ks").data.cast(),
        x_stride: logits.stride(0),
        out_stride: out.stride(0),
        cols: call.dim("vocab") as i32,
        k: call.int("top_k") as i32,
        tie_bits: selection.tie_bits,
        list: selection.list as i32,
        resident: selection.resident as i32,
    };
    selection.launch(Params::new(params))
}
