//! Launcher of merge_states.

use super::cascade;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_merge_states_params;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    cascade::check(call, "v", wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    cascade::select(call, &["v", "v_merged"], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [v_merged, s_merged, v, s] = ["v_merged", "s_merged", "v", "s"].map(|t| call.tensor(t));
    let plan = cascade::plan(call, v_merged, tactic, 1);
    let params = pb_merge_states_params {
        v_merged: v_merged.data,
        s_merged: s_merged.data,
        v: v.data,
        s: s.data,
        v_merged_stride: v_merged.stride(0),
        v_merged_head_stride: v_merged.stride(1),
        s_merged_stride: s_merged.stride(0),
        s_merged_head_stride: s_merged.stride(1),
        v_stride: v.stride(0),
        v_state_stride: v.stride(1),
        v_head_stride: v.stride(2),
        s_stride: s.stride(0),
        s_state_stride: s.stride(1),
        s_head_stride: s.stride(2),
        items: plan.items as u32,
        groups: plan.groups as i32,
        states: call.dim("states") as i32,
        lanes: plan.lanes as i32,
        units: plan.units as i32,
    };
    cascade::launch(Params::new(params), &plan)
}
