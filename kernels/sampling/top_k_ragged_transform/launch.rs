//! Launcher of top_k_ragged_transform.

use super::sampling::Selection;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_top_k_ragged_transform_params;

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    Selection::choose(call.tensor("input"), target, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (input, out) = (call.tensor("input"), call.tensor("output_indices"));
    let selection = Selection::new(input, tactic, 0, false);
    let params = pb_top_k_ragged_transform_params {
        input: input.data,
        offsets: call.tensor("offsets").data.cast(),
        lengths: call.tensor("lengths").data.cast(),
        out: out.data.cast(),
        input_stride: input.stride(0),
        out_stride: out.stride(0),
        max_len: call.dim("max_len") as i32,
        k: call.dim("k") as i32,
        tie_bits: selection.tie_bits,
        late: i32::from(call.int("tie_break") == 2),
        list: selection.list as i32,
        resident: selection.resident as i32,
    };
    selection.launch(Params::new(params))
}
