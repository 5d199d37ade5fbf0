//! Launcher of amax.

use super::quantization::{self, Deal};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_amax_params;

/// Shares, and blocks.
const SHARES: u32 = 512;

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let x = call.tensor("x");
    quantization::select(x, x, call.dim("hidden"), 1, choices);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, rows, hidden) = (call.tensor("x"), call.dim("rows"), call.dim("hidden"));
    let deal = Deal::new(x.dtype, hidden, 1);
    let params = pb_amax_params {
        x: x.data,
        out: call.tensor("out").data,
        x_stride: x.stride(0),
        rows,
        tiles: deal.blocks(rows),
        hidden: hidden as i32,
        row_threads: deal.row_threads,
        block_rows: deal.block_rows,
        chunks: deal.chunks,
        down: deal.down,
    };
    Launch::new(Params::new(params), [SHARES, 1, 1], deal.threads().next_multiple_of(32))
}
