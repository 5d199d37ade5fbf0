//! Launcher of moe_route.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong, divider};
use crate::params::pb_moe_route_params;

const BLOCK: u32 = 128;
/// Tokens of a block: each warp takes one.
const TOKENS: i64 = 4;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let (experts, k) = (call.dim("experts"), call.dim("k"));
    let (groups, kept) = (call.int("groups"), call.int("kept_groups"));
    if experts % groups != 0 {
        wrong.add("groups", "value", format!("a divisor of the {experts} experts"), groups.to_string());
        return;
    }
    if kept > groups {
        wrong.add("kept_groups", "value", format!("at most the {groups} groups"), kept.to_string());
        return;
    }
    let most = experts / groups * kept;
    if k > most {
        wrong.add("k", "value", format!("at most the {most} experts that may be chosen"), k.to_string());
    }
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    for each in [4, 8, 16] {
        if call.dim("experts") <= 32 * i64::from(each) {
            choices.push(&[each]);
        }
    }
    choices.push(&[0]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [logits, weights, ids] = ["logits", "weights", "ids"].map(|t| call.tensor(t));
    let (experts, groups) = (call.dim("experts"), call.int("groups"));
    let (magic, shift) = divider((experts / groups) as u32);
    let params = pb_moe_route_params {
        logits: logits.data,
        bias: call.tensor("bias").data,
        weights: weights.data,
        ids: ids.data,
        logits_stride: logits.stride(0),
        weights_stride: weights.stride(0),
        ids_stride: ids.stride(0),
        tokens: call.dim("tokens"),
        experts: experts as i32,
        k: call.dim("k") as i32,
        scoring: call.int("scoring") as i32,
        renormalize: call.flag("renormalize").into(),
        groups: groups as i32,
        kept_groups: call.int("kept_groups") as i32,
        group_best: call.int("group_best") as i32,
        magic,
        shift,
        scale: call.scalar("scale"),
    };
    let blocks = (call.dim("tokens") as u64).div_ceil(TOKENS as u64) as u32;
    // Where registers hold no keys, the shared memory of each warp has the row's.
    let shared = if tactic.0[0] == 0 { 4 * TOKENS as u32 * experts as u32 } else { 0 };
    Launch::new(Params::new(params), [blocks, 1, 1], BLOCK).shared(shared)
}
