//! Launcher of all_reduce_rmsnorm.

use super::collective::{self, BLOCKS, THREADS, UNIT};
use super::gemm::div_ceil;
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_all_reduce_rmsnorm_params;

/// Tells the ops of the family apart.
const KIND: i64 = 4;
const ROWS: [&str; 4] = ["x", "residual", "residual_out", "out"];

/// Units of a row.
fn units(call: &Checked<'_>) -> i64 {
    call.dim("hidden") * call.tensor("x").dtype.bytes() as i64 / UNIT
}

/// Rows of a block.
fn per(call: &Checked<'_>) -> i64 {
    div_ceil(call.dim("rows"), BLOCKS).max(1)
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let hidden = call.dim("hidden");
    let lane = UNIT / call.tensor("x").dtype.bytes() as i64;
    if hidden % lane != 0 {
        wrong.add("x", "shape", format!("rows of a multiple of {lane} elements"), hidden.to_string());
    }
    for name in ROWS.into_iter().chain(["weight"]).filter(|name| call.given(name)) {
        collective::aligned(call, name, UNIT, wrong);
    }
    if call.given("quant") {
        collective::aligned(call, "quant", lane, wrong);
    }
    let strides = ROWS.into_iter().chain(["quant"]).filter(|name| call.given(name) && call.dim("rows") > 1);
    for (name, stride) in strides.map(|name| (name, call.tensor(name).stride(0))).filter(|(_, s)| s % lane != 0) {
        wrong.add(name, "strides", format!("a multiple of {lane} elements from row to row"), stride.to_string());
    }
    if !call.given("out") && !call.given("quant") {
        wrong.add("out", "presence", "out, quant, or both", "neither");
    }
    collective::check(call, per(call) * units(call) * UNIT, wrong);
}

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[]);
}

pub(crate) fn arrange(call: &Checked<'_>, _tactic: &Tactic) -> Launch {
    let [x, residual, residual_out, out] = ROWS.map(|name| call.tensor(name));
    let (quant, units, rows, per) = (call.tensor("quant"), units(call), call.dim("rows"), per(call));
    let stride = |name: &str| if call.given(name) { call.tensor(name).stride(0) } else { 0 };
    let params = pb_all_reduce_rmsnorm_params {
        group: collective::group(call, &[KIND, x.dtype as i64, rows, units]),
        x: x.data,
        residual: residual.data,
        weight: call.tensor("weight").data,
        residual_out: residual_out.data,
        out: out.data,
        quant: quant.data,
        scale: call.tensor("scale").data,
        x_stride: x.stride(0),
        residual_stride: residual.stride(0),
        residual_out_stride: residual_out.stride(0),
        out_stride: stride("out"),
        quant_stride: stride("quant"),
        rows,
        per,
        units: units as i32,
        inv_hidden: 1.0 / call.dim("hidden") as f32,
        eps: call.scalar("eps"),
        weight_bias: call.scalar("weight_bias"),
        scale_value: call.scalar("scale_value"),
    };
    // As many as do with the fewest accesses of each.
    let threads = div_ceil(div_ceil(units, div_ceil(units, THREADS)), 32) * 32;
    Launch::new(Params::new(params), [div_ceil(rows, per) as u32, 1, 1], threads as u32)
}
