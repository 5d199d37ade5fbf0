//! What the ops that draw tokens share: how a row is laid over blocks, where random numbers come from, and the float64
//! reference of a draw.

use crate::binding::{Checked, Launch, Params, Problem, Target, Tensor, Wrong};

/// Bytes of a full vector.
pub(crate) const VECTOR: u32 = 16;
/// Blocks of a cluster that takes a row.
pub(crate) const CLUSTER: u32 = 8;
/// Weights of a segment, as in row.cuh.
const SEGMENT: u64 = 512;
/// Most warps of a block, as in row.cuh.
const WARPS: u64 = 16;

/// Whether the target has clusters.
pub(crate) fn has_clusters(target: Target) -> bool {
    target.arch().is_some_and(|arch| arch.0 >= 90)
}

/// Whether rows of `vocab` elements, each a step of `strides` apart, are whole vectors at vector boundaries.
pub(crate) fn aligned(tensor: &Tensor, vocab: i64) -> bool {
    let bytes = tensor.dtype.bytes() as i64;
    let whole = |n: i64| n.wrapping_mul(bytes) % i64::from(VECTOR) == 0;
    let outer = 0..tensor.shape().len() - 1;
    let strides = outer.filter(|i| tensor.shape()[*i] > 1).all(|i| whole(tensor.stride(i)));
    (tensor.data as u64).is_multiple_of(u64::from(VECTOR)) && strides && whole(vocab)
}

/// Bytes of shared memory for the sums of a row's segments, and for a block's share of its weights.
pub(crate) fn shared(vocab: i64, held: bool, blocks: u32) -> u32 {
    let segments = (vocab as u64).div_ceil(SEGMENT);
    let weights = if held { segments.div_ceil(u64::from(blocks)) * SEGMENT * 4 } else { 0 };
    (weights + segments * 8) as u32
}

/// A launch in which `blocks` take a row.
pub(crate) fn launch(params: Params, rows: i64, vocab: i64, held: bool, blocks: u32) -> Launch {
    let share = (vocab as u64).div_ceil(SEGMENT).div_ceil(u64::from(blocks));
    let grid = [rows as u32 * blocks, 1, 1];
    Launch::new(params, grid, 32 * share.min(WARPS) as u32).shared(shared(vocab, held, blocks)).cluster(blocks)
}

/// Seeds and offsets are one for all or one for each row.
pub(crate) fn check_random(call: &Checked<'_>, wrong: &mut Wrong) {
    let rows = call.dim("rows");
    for (name, count) in [("seeds", "seed_count"), ("offsets", "offset_count")] {
        let count = call.dim(count);
        if call.given(name) && count != 1 && count != rows {
            wrong.add(name, "shape", format!("1 or {rows} elements"), count.to_string());
        }
    }
}

/// The step between the seeds or offsets of rows.
pub(crate) fn step(call: &Checked<'_>, name: &str) -> i64 {
    i64::from(call.given(name) && call.tensor(name).shape()[0] > 1)
}

/// Uniform in (0, 1): word 0 of Philox4x32-10, as in philox.cuh.
pub(crate) fn uniform(seed: u64, offset: u64, row: u32, draw: u32) -> f64 {
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut c = [offset as u32, (offset >> 32) as u32, row, draw];
    for _ in 0..10 {
        let (a, b) = (0xd251_1f53 * u64::from(c[0]), 0xcd9e_8d57 * u64::from(c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    (f64::from(c[0]) + 0.5) / 4_294_967_296.0
}

/// Seed and offset of a row.
pub(crate) fn key(problem: &Problem, row: usize) -> (u64, u64) {
    let value = |many: &str, one: &str| match problem.inputs.get(many) {
        Some(values) => values[if values.len() == 1 { 0 } else { row }] as i64 as u64,
        None => problem.scalars[one] as u64,
    };
    (value("seeds", "seed"), value("offsets", "offset"))
}

/// What f32 sums may differ by, as a share of the row's mass.
const SLACK: f64 = 4e-6;

/// The tokens that a draw may give: those whose share of the mass, in the order of indices, is around `u`. Tokens of
/// weight 0 are none. `mass` is that of all weights.
pub(crate) fn drawn(weights: &[f64], mass: f64, u: f64) -> Vec<usize> {
    let mut upto = 0.0;
    let mut found = Vec::new();
    for (i, w) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
        let begin = upto;
        upto += w;
        if u * mass >= begin - SLACK * mass && u * mass <= upto + SLACK * mass {
            found.push(i);
        }
    }
    found
}

/// Whether a mass is less than a bound; nothing where rounding decides.
pub(crate) fn less(mass: f64, bound: f64, total: f64) -> Option<bool> {
    ((mass - bound).abs() > SLACK * total).then_some(mass < bound)
}
