//! What the launchers of the row norms share: which tactics are legal for a shape, their order, and the launch.
//!
//! A tactic is `block` (most threads), `rows` (rows that a block takes), `vec` (bytes per access) and `peel` (vectors
//! cover the aligned part of a row that may begin anywhere). The thresholds were measured on an H200; nothing in them
//! depends on an architecture's limits. docs/measurements/norm.md has the figures.

use crate::binding::{Checked, Choices, Launch, Params, Tactic, Tensor};

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

/// Orders the legal tactics for two matrices of rows and the weight.
pub(crate) fn select(call: &Checked<'_>, first: &str, second: &str, choices: &mut Choices) {
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
        1025..=32768 => vectors[3],
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

/// The grid covers all rows; a block with one row has as many threads as keep it in registers.
pub(crate) fn launch(params: Params, call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [block, rows, vec, _] = tactic.0;
    let threads = if rows > 1 {
        block
    } else {
        // Accesses of a thread whose values stay in registers, as in norm.cuh.
        let held = if vec == VECTOR { 4 } else { 6 };
        let bytes = call.dim("hidden") as u32 * call.tensor("weight").dtype.bytes() as u32;
        block.min(bytes.div_ceil(vec).div_ceil(held).div_ceil(32) * 32)
    };
    let blocks = (call.dim("rows") as u64).div_ceil(u64::from(rows));
    Launch::new(params, [blocks as u32, 1, 1], threads)
}
