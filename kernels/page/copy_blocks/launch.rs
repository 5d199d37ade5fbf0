//! Launcher of copy_blocks.

use super::page;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_copy_blocks_params;

/// Accesses of each cache that a thread makes at most, as in the kernel.
const HELD: i64 = 2;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    page::check_threads("block_mapping", call.dim("pairs"), (call.dim("block") + HELD - 1) / HELD, wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    page::select(&[call.tensor("k_cache"), call.tensor("v_cache")], &[call.dim("block")], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (k, v, mapping) = (call.tensor("k_cache"), call.tensor("v_cache"), call.tensor("block_mapping"));
    let pairs = call.dim("pairs");
    let units = call.dim("block") * k.dtype.bytes() as i64 / i64::from(tactic.0[0]);
    let groups = page::groups(units, pairs, HELD);
    let threads = (pairs * groups) as u32;
    let params = pb_copy_blocks_params {
        k_cache: k.data,
        v_cache: v.data,
        mapping: mapping.data,
        k_stride: page::bytes(k, 0),
        v_stride: page::bytes(v, 0),
        mapping_stride: mapping.stride(0),
        blocks: call.dim("blocks"),
        threads,
        groups: groups as i32,
        units: units as i32,
    };
    page::launch(Params::new(params), threads)
}
