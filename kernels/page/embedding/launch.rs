//! Launcher of embedding.

use super::page;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_embedding_params;

/// Accesses of a row that a thread makes at most, as in the kernel.
const HELD: i64 = 4;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    page::check_threads("ids", call.dim("tokens"), (call.dim("hidden") + HELD - 1) / HELD, wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    page::select(&["out", "table"].map(|t| call.tensor(t)), &[call.dim("hidden")], choices);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [out, ids, table] = ["out", "ids", "table"].map(|t| call.tensor(t));
    let tokens = call.dim("tokens");
    let units = call.dim("hidden") * out.dtype.bytes() as i64 / i64::from(tactic.0[0]);
    let groups = page::groups(units, tokens, HELD);
    let threads = (tokens * groups) as u32;
    let params = pb_embedding_params {
        out: out.data,
        ids: ids.data,
        table: table.data,
        out_stride: page::bytes(out, 0),
        ids_stride: ids.stride(0),
        table_stride: page::bytes(table, 0),
        first: call.int("first"),
        vocab: call.dim("vocab"),
        threads,
        groups: groups as i32,
        units: units as i32,
    };
    page::launch(Params::new(params), threads)
}
