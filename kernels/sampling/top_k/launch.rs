//! Launcher of top_k.

use super::sampling::Selection;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_top_k_params;

/// The most elements that are sorted: what the shared memory of every GPU has room for.
const SORTED: i64 = 4096;

/// Elements of a row that are taken.
fn taken(call: &Checked<'_>) -> i64 {
    call.dim("k").min(call.dim("cols"))
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    if call.flag("sorted") && taken(call) > SORTED {
        wrong.add("k", "value", format!("at most {SORTED} with `sorted`"), call.dim("k").to_string());
    }
}

/// Rows up to which two warps are enough: many rows share a multiprocessor.
const TINY: i64 = 2048;

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    if call.dim("cols") <= TINY {
        choices.push(&[64, 0]);
    }
    Selection::choose(call.tensor("input"), target, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (input, values, indices) = (call.tensor("input"), call.tensor("values"), call.tensor("indices"));
    let sorted = if call.flag("sorted") { (taken(call) as u32).next_power_of_two().max(64) } else { 0 };
    let selection = Selection::new(input, tactic, sorted, false);
    let params = pb_top_k_params {
        input: input.data,
        values: values.data,
        indices: indices.data.cast(),
        input_stride: input.stride(0),
        values_stride: values.stride(0),
        indices_stride: indices.stride(0),
        cols: call.dim("cols") as i32,
        k: call.dim("k") as i32,
        tie_bits: selection.tie_bits,
        late: i32::from(call.int("tie_break") == 2),
        sorted: sorted as i32,
        list: selection.list as i32,
        resident: selection.resident as i32,
    };
    selection.launch(Params::new(params))
}
