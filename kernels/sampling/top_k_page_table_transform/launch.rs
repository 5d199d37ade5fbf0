//! Launcher of top_k_page_table_transform.

use super::sampling::Selection;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_top_k_page_table_transform_params;

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    Selection::choose(call.tensor("input"), target, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (input, table, out) = (call.tensor("input"), call.tensor("src_page_table"), call.tensor("output_page_table"));
    let selection = Selection::new(input, tactic, 0, false);
    let params = pb_top_k_page_table_transform_params {
        input: input.data,
        src_page_table: table.data.cast(),
        lengths: call.tensor("lengths").data.cast(),
        row_to_batch: call.tensor("row_to_batch").data.cast(),
        out: out.data.cast(),
        input_stride: input.stride(0),
        table_stride: table.stride(0),
        out_stride: out.stride(0),
        batch: call.dim("batch"),
        max_len: call.dim("max_len") as i32,
        k: call.dim("k") as i32,
        tie_bits: selection.tie_bits,
        late: i32::from(call.int("tie_break") == 2),
        list: selection.list as i32,
        resident: selection.resident as i32,
    };
    selection.launch(Params::new(params))
}
