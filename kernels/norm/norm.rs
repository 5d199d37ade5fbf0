//! What the launchers of the row norms share: which tactics are legal for a shape, their order, and the launch.
//!
//! A tactic is `block` (threads), `rows` (rows that a block takes at a time) and `vec` (bytes per access).

use crate::binding::{Checked, Choices, Launch, Params, Tactic};

/// Rows of up to this many bytes are taken by one warp each.
const WARP_ROW: i64 = 2048;

/// Orders the legal tactics for the rows named by `rows`, which share strides and alignment rules with `weight`.
pub(crate) fn select(call: &Checked<'_>, rows: &[&str], choices: &mut Choices) {
    let element = call.tensor("weight").dtype.bytes();
    let bytes = call.dim("hidden") * element as i64;
    let aligned = rows.iter().chain(&["weight"]).all(|name| call.tensor(name).alignment(16) == 16) && bytes % 16 == 0;
    let vec = if aligned { 16 } else { element as u32 };
    let accesses = bytes / i64::from(vec);
    if bytes <= WARP_ROW {
        choices.push(&[128, 4, vec]);
    }
    // Few accesses a thread leave it little to overlap; few threads leave the processor little to switch to.
    let block = match accesses {
        ..=256 => 128,
        257..=1024 => 256,
        1025..=2048 => 512,
        _ => 1024,
    };
    choices.push(&[block, 1, vec]);
    for other in [256, 128, 512, 1024] {
        choices.push(&[other, 1, vec]);
    }
    choices.push(&[128, 4, vec]);
    // One element at a time is always legal.
    if aligned {
        choices.push(&[256, 1, element as u32]);
    }
}

/// One block for each group of rows; blocks loop, so the grid may be capped.
pub(crate) fn launch(params: Params, rows: i64, tactic: &Tactic) -> Launch {
    let [block, group, ..] = tactic.0;
    let blocks = (rows as u64).div_ceil(u64::from(group)).min(0x7fff_ffff);
    Launch { params, grid: [blocks as u32, 1, 1], block: [block, 1, 1], shared: 0 }
}
