//! Launcher of top_k_renorm_probs.

use super::sampling::Selection;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_top_k_renorm_probs_params;

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    Selection::choose(call.tensor("probs"), target, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (probs, out) = (call.tensor("probs"), call.tensor("renorm_probs"));
    let selection = Selection::new(probs, tactic, 0, false);
    let params = pb_top_k_renorm_probs_params {
        x: probs.data,
        out: out.data,
        of: call.tensor("top_ks").data.cast(),
        x_stride: probs.stride(0),
        out_stride: out.stride(0),
        cols: call.dim("vocab") as i32,
        k: call.int("top_k") as i32,
        tie_bits: selection.tie_bits,
        list: selection.list as i32,
        resident: selection.resident as i32,
    };
    selection.launch(Params::new(params))
}
