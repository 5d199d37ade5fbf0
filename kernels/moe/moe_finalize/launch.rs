//! Launcher of moe_finalize.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong, divider};
use crate::params::pb_moe_finalize_params;

const VECTOR: u64 = 16;
const BLOCK: u32 = 256;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    // Blocks are numbered with 32 bits, and divided.
    let most = i64::from(i32::MAX) / call.dim("hidden") * i64::from(BLOCK) / 2;
    if call.dim("tokens") > most {
        let expected = format!("at most {most} tokens of {} elements", call.dim("hidden"));
        wrong.add("out", "shape", expected, call.dim("tokens").to_string());
    }
}

pub(crate) fn select(call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    let element = call.tensor("out").dtype.bytes() as u32;
    let fits = |t: &&str| call.tensor(t).is_empty() || call.tensor(t).alignment(VECTOR) == VECTOR;
    let row = call.dim("hidden") as u64 * u64::from(element);
    if row.is_multiple_of(VECTOR) && ["x", "out"].iter().all(fits) {
        choices.push(&[VECTOR as u32]);
    }
    choices.push(&[element]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [x, places, weights, out] = ["x", "places", "weights", "out"].map(|t| call.tensor(t));
    let row = call.dim("hidden") as u32 / (tactic.0[0] / out.dtype.bytes() as u32);
    let (magic, shift) = divider(row);
    let units = call.dim("tokens") * i64::from(row);
    let params = pb_moe_finalize_params {
        x: x.data,
        places: places.data,
        weights: weights.data,
        out: out.data,
        x_stride: x.stride(0),
        places_stride: places.stride(0),
        weights_stride: weights.stride(0),
        out_stride: out.stride(0),
        units,
        k: call.dim("k") as i32,
        row,
        magic,
        shift,
    };
    let blocks = (units as u64).div_ceil(u64::from(BLOCK)) as u32;
    Launch::new(Params::new(params), [blocks, 1, 1], BLOCK)
}
