//! Launcher of all_reduce.

use super::collective::{self, Spread, UNIT};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_all_reduce_params;

/// Tells the ops of the family apart.
const KIND: i64 = 1;

fn units(call: &Checked<'_>) -> i64 {
    call.dim("elements") * call.tensor("x").dtype.bytes() as i64 / UNIT
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    for name in ["x", "out"] {
        collective::whole(call, name, call.dim("elements"), wrong);
    }
    collective::check(call, Spread::new(units(call)).per * UNIT, wrong);
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    // Two ranks read as much either way. Of more, two shots read 2 / ranks as much, and meet once more.
    let most = match call.dim("ranks") {
        ..=2 => i64::MAX,
        3..=4 => 512 << 10,
        _ => 256 << 10,
    };
    let shots: u32 = if units(call) * UNIT < most { 1 } else { 2 };
    choices.push(&[shots]);
    choices.push(&[3 - shots]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, out, units) = (call.tensor("x"), call.tensor("out"), units(call));
    let spread = Spread::new(units);
    let facts = [KIND, i64::from(tactic.0[0]), x.dtype as i64, units];
    let params = pb_all_reduce_params {
        group: collective::group(call, &facts),
        x: x.data,
        out: out.data,
        units,
        per: spread.per,
    };
    Launch::new(Params::new(params), [spread.blocks, 1, 1], spread.threads)
}
