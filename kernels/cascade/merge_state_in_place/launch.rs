//! Launcher of merge_state_in_place.

use super::cascade;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_merge_state_in_place_params;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    cascade::check(call, "v", wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    cascade::select(call, &["v", "v_other"], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [v, s, v_b, s_b] = ["v", "s", "v_other", "s_other"].map(|t| call.tensor(t));
    let plan = cascade::plan(call, v, tactic, 2);
    let params = pb_merge_state_in_place_params {
        v: v.data,
        s: s.data,
        v_a: v.data,
        s_a: s.data,
        v_b: v_b.data,
        s_b: s_b.data,
        mask: call.tensor("mask").data,
        v_stride: v.stride(0),
        v_head_stride: v.stride(1),
        s_stride: s.stride(0),
        s_head_stride: s.stride(1),
        v_a_stride: v.stride(0),
        v_a_head_stride: v.stride(1),
        s_a_stride: s.stride(0),
        s_a_head_stride: s.stride(1),
        v_b_stride: v_b.stride(0),
        v_b_head_stride: v_b.stride(1),
        s_b_stride: s_b.stride(0),
        s_b_head_stride: s_b.stride(1),
        items: plan.items as u32,
        heads: call.dim("heads") as i32,
        groups: plan.groups as i32,
        lanes: plan.lanes as i32,
        units: plan.units as i32,
    };
    cascade::launch(Params::new(params), &plan)
}
