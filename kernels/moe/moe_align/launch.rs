//! Launcher of moe_align.

use super::moe;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong, divider};
use crate::params::pb_moe_align_params;

/// Blocks at most: experts beyond take turns.
const BLOCKS: i64 = 1024;
/// Choices from which on more threads count them faster than they are started.
const MANY: i64 = 4096;

fn choices_of(call: &Checked<'_>) -> i64 {
    call.dim("tokens") * call.dim("k")
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let (choices, tile) = (choices_of(call), call.int("tile"));
    if choices > i64::from(i32::MAX) {
        wrong.add("ids", "shape", "at most 2147483647 choices", choices.to_string());
        return;
    }
    let places = moe::most_places(choices, call.dim("experts"), tile);
    for (name, dim, needed) in [("rows", "capacity", places), ("tile_experts", "tiles", places / tile)] {
        if call.given(name) && call.dim(dim) < needed {
            let expected = format!("at least {needed} elements for {choices} choices in tiles of {tile}");
            wrong.add(name, "shape", expected, call.dim(dim).to_string());
        }
    }
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    if choices_of(call) > MANY {
        choices.push(&[1024]);
    }
    choices.push(&[256]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (magic, shift) = divider(call.dim("k") as u32);
    let (ids, experts) = (call.tensor("ids"), call.dim("experts"));
    let params = pb_moe_align_params {
        ids: ids.data,
        rows: call.tensor("rows").data,
        tile_experts: call.tensor("tile_experts").data,
        indptr: call.tensor("indptr").data,
        places: call.tensor("places").data,
        choices: choices_of(call) as i32,
        experts: experts as i32,
        first: call.int("first") as i32,
        tile: call.int("tile") as i32,
        capacity: call.dim("capacity") as i32,
        tiles: if call.given("tile_experts") { call.dim("tiles") as i32 } else { 0 },
        magic,
        shift,
        wide: i32::from((ids.data as u64).is_multiple_of(16)),
    };
    // Where nothing is chosen one block says so.
    let blocks = if choices_of(call) == 0 { 1 } else { experts.min(BLOCKS) as u32 };
    Launch::new(Params::new(params), [blocks, 1, 1], tactic.0[0]).shared(4 * experts as u32)
}
