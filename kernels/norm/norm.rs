//! What the launchers of the row norms share: which tactics are legal for a shape, their order, and the launch.
//!
//! A tactic is `block` (most threads), `rows` (rows that a block takes), `vec` (bytes per access; always 16 in the later
//! ops, which have no such tactic) and `peel` (vectors cover the aligned part of a row that may begin anywhere). The thresholds were measured on an H200; nothing in them
//! depends on an architecture's limits. docs/measurements/norm.md has the figures.

use crate::binding::{Checked, Choices, Draw, Launch, Params, Problem, Tactic, Tensor};

/// Bytes of a full vector.
const VECTOR: u32 = 16;
/// Threads of a block that has one row.
const ROW_BLOCK: u32 = 512;
/// Threads of a block that has one row too long for the registers of [`ROW_BLOCK`] threads.
const LONG_ROW_BLOCK: u32 = 1024;
/// Threads of a block that has several rows.
const ROWS_BLOCK: u32 = 128;

/// Bytes, modulo a vector, by which a tensor's rows miss a vector boundary: of the first row, and from row to row. The
/// stride of a single row means nothing.
fn misses(tensor: &Tensor) -> (u64, u64) {
    let step = if tensor.shape()[0] > 1 { tensor.stride(0) as u64 } else { 0 };
    let vector = u64::from(VECTOR);
    (tensor.data as u64 % vector, step.wrapping_mul(tensor.dtype.bytes() as u64) % vector)
}

/// Orders the legal tactics for two matrices of rows and the weight. A thread of a block of [`ROW_BLOCK`] holds so many
/// vectors.
pub(crate) fn select(call: &Checked<'_>, first: &str, second: &str, held: u32, choices: &mut Choices) {
    let (first, second, weight) = (call.tensor(first), call.tensor(second), call.tensor("weight"));
    let element = weight.dtype.bytes() as u32;
    let hidden = call.dim("hidden");
    let bytes = hidden * i64::from(element);
    let alike = misses(first) == misses(second);
    let whole = bytes % i64::from(VECTOR) == 0 && (weight.data as u64).is_multiple_of(u64::from(VECTOR));
    let aligned = alike && misses(first) == (0, 0) && whole;

    let short = |rows| [ROWS_BLOCK, rows, VECTOR, 0];
    let vectors = [short(32), short(16), short(8), [ROW_BLOCK, 1, VECTOR, 0], [LONG_ROW_BLOCK, 1, VECTOR, 0]];
    let peeled = [[ROWS_BLOCK, 8, VECTOR, 1], [ROW_BLOCK, 1, VECTOR, 1]];
    let narrow = [[ROWS_BLOCK, 8, element, 0], [ROW_BLOCK, 1, element, 0]];
    let best = match bytes {
        _ if !aligned && alike => peeled[usize::from(bytes > 1024)],
        _ if !aligned => narrow[usize::from(hidden > 96)],
        ..=256 => vectors[0],
        257..=512 => vectors[1],
        513..=1024 => vectors[2],
        _ if bytes <= i64::from(ROW_BLOCK * held * VECTOR) => vectors[3],
        _ => vectors[4],
    };
    choices.push(&best);
    if aligned {
        vectors.iter().for_each(|t| choices.push(t));
    }
    if alike {
        peeled.iter().for_each(|t| choices.push(t));
    }
    narrow.iter().for_each(|t| choices.push(t));
}

/// Orders the legal tactics where peeled rows fit any further operand: `rows` are the matrices, `vectors` the weights.
pub(crate) fn select_peeling(call: &Checked<'_>, rows: &[&str], vectors: &[&str], choices: &mut Choices) {
    let element = call.tensor("x").dtype.bytes() as u64;
    let hidden = call.dim("hidden");
    let lane = u64::from(VECTOR) / element;
    let whole = |name: &&str| {
        let tensor = call.tensor(name);
        let step = if tensor.shape()[0] > 1 { tensor.stride(0) as u64 } else { 0 };
        // As many elements as an access of x has.
        let unit = lane * tensor.dtype.bytes() as u64;
        (tensor.data as u64).is_multiple_of(unit) && step.is_multiple_of(lane)
    };
    let full = |name: &&str| (call.tensor(name).data as u64).is_multiple_of(u64::from(VECTOR));
    let aligned = (hidden as u64).is_multiple_of(lane) && rows.iter().all(whole) && vectors.iter().all(full);

    let vectors = [[ROWS_BLOCK, 32, 0], [ROWS_BLOCK, 8, 0], [ROW_BLOCK, 1, 0], [LONG_ROW_BLOCK, 1, 0]];
    let peeled = [[ROWS_BLOCK, 8, 1], [ROW_BLOCK, 1, 1]];
    let bytes = hidden as u64 * element;
    choices.push(&match bytes {
        _ if !aligned => peeled[usize::from(bytes > 1024)],
        ..=256 => vectors[0],
        257..=1024 => vectors[1],
        1025..=32768 => vectors[2],
        _ => vectors[3],
    });
    if aligned {
        vectors.iter().for_each(|t| choices.push(t));
    }
    peeled.iter().for_each(|t| choices.push(t));
}

/// The launch of a tactic of [`select_peeling`].
pub(crate) fn launch_peeling(params: Params, call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [block, rows, ..] = tactic.0;
    let bytes = call.dim("hidden") as u32 * call.tensor("x").dtype.bytes() as u32;
    launch_rows(params, call, block, rows, bytes.div_ceil(4 * VECTOR))
}

/// The grid covers all rows; a block with one row has as many threads as keep it in registers. `held` is that of
/// [`select`].
pub(crate) fn launch(params: Params, call: &Checked<'_>, tactic: &Tactic, held: u32) -> Launch {
    let [block, rows, vec, peel] = tactic.0;
    // Accesses of a thread whose values stay in registers, as in norm.cuh.
    let held = match (vec, block, peel) {
        (VECTOR, ROW_BLOCK, 0) => held,
        (VECTOR, ..) => 4,
        _ => 6,
    };
    let bytes = call.dim("hidden") as u32 * call.tensor("weight").dtype.bytes() as u32;
    launch_rows(params, call, block, rows, bytes.div_ceil(vec).div_ceil(held))
}

fn launch_rows(params: Params, call: &Checked<'_>, block: u32, rows: u32, needed: u32) -> Launch {
    let threads = if rows > 1 { block } else { block.min(needed.div_ceil(32) * 32) };
    let blocks = (call.dim("rows") as u64).div_ceil(u64::from(rows));
    Launch::new(params, [blocks as u32, 1, 1], threads)
}

/// x / sqrt(mean(x²) + eps) · (weight + weight_bias) of each row, in float64.
pub(crate) fn rms_normalised(problem: &Problem, x: &[f64]) -> Vec<f64> {
    let weight = &problem.inputs["weight"];
    let (eps, bias) = (problem.scalars["eps"], problem.scalars["weight_bias"]);
    let mut values = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let mean_square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean_square + eps).sqrt();
        values.extend(row.iter().zip(weight).map(|(v, w)| v * scale * (w + bias)));
    }
    values
}

/// (x − mean(x)) / sqrt(var(x) + eps) · weight + bias of each row, in float64.
pub(crate) fn layer_normalised(problem: &Problem) -> Vec<f64> {
    let (x, weight, bias) = (&problem.inputs["x"], &problem.inputs["weight"], &problem.inputs["bias"]);
    let mut values = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (variance + problem.scalars["eps"]).sqrt();
        values.extend(row.iter().zip(weight).zip(bias).map(|((v, w), b)| (v - mean) * scale * w + b));
    }
    values
}

/// A scale is positive; these bring some elements of out to its largest number.
pub(crate) fn draw_scale(draw: &mut Draw<'_>) {
    let scale = draw.random.uniform().mul_add(0.05, 0.002);
    if let Some(values) = draw.tensors.get_mut("scale") {
        values.fill(scale);
    }
}

/// Divides each row by its scale, the largest magnitude over `largest`, and returns the scales.
pub(crate) fn scaled_rows(problem: &Problem, values: &mut [f64]) -> Vec<f64> {
    let largest = problem.dtype.max().expect("bug: out is a floating-point type");
    let scale_row = |row: &mut [f64]| {
        let amax = row.iter().fold(problem.scalars["floor"], |top, v| top.max(v.abs()));
        row.iter_mut().for_each(|v| *v /= amax / largest);
        amax / largest
    };
    values.chunks_exact_mut(problem.inputs["weight"].len()).map(scale_row).collect()
}
