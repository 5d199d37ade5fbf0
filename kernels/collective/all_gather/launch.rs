//! Launcher of all_gather.

use super::collective::{self, Spread, UNIT};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_all_gather_params;

/// Tells the ops of the family apart.
const KIND: i64 = 2;

fn units(call: &Checked<'_>) -> i64 {
    call.dim("elements") * call.tensor("x").dtype.bytes() as i64 / UNIT
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    for name in ["x", "out"] {
        collective::whole(call, name, call.dim("elements"), wrong);
    }
    collective::check(call, Spread::new(units(call)).per * UNIT, wrong);
}

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[]);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let (x, out, units) = (call.tensor("x"), call.tensor("out"), units(call));
    let spread = Spread::new(units);
    let group = collective::group(call, &[KIND, x.dtype as i64, units]);
    let params = pb_all_gather_params { group, x: x.data, out: out.data, units, per: spread.per };
    Launch::new(Params::new(params), [spread.blocks, 1, 1], spread.threads)
}
