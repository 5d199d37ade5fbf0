//! What the ops that draw tokens share: how a row is laid over blocks, where random numbers come from, and the float64
//! reference of a draw. Then what the ops that select the greatest elements share.

use crate::binding::{Checked, Choices, Draw, Launch, Params, Problem, Tactic, Target, Tensor, Wrong};

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

/// How the ops that select the greatest elements lie on the GPU, as in row_keys.cuh and select.cuh.
pub(crate) struct Selection {
    rows: u32,
    /// Blocks that take a row.
    blocks: u32,
    threads: u32,
    /// Bits that hold the last index of a row.
    pub(crate) tie_bits: i32,
    /// Bytes of shared memory before the keys.
    pub(crate) list: u32,
    /// Vectors of keys that stay in shared memory.
    pub(crate) resident: u32,
}

impl Selection {
    /// Dynamic shared memory of a block that is alone with a row, and of one in a cluster. With what is static, the first
    /// fits every GPU from sm_75 on, the second every GPU that has clusters, twice on those with 227 KiB.
    const ALONE: u32 = 44 << 10;
    const SHARED: u32 = 76 << 10;
    /// What sums of masses take of that.
    const MASS: u32 = 8 << 10;
    /// Candidates that are listed, if the row has so many.
    const LISTED: u64 = 1024;
    /// Elements of a row that is short: a block of 256 threads takes it.
    const SHORT: i64 = 4096;
    /// Bytes of a row below which a second block costs more than it brings.
    const WORTH: u64 = 32 << 10;
    /// Blocks that keep a large GPU busy.
    const BUSY: u64 = 132;

    /// Orders the legal tactics for these rows.
    pub(crate) fn choose(rows: &Tensor, target: Target, choices: &mut Choices) {
        let (short, long, cluster) = ([256, 0], [1024, 0], [512, 1]);
        let clusters = has_clusters(target);
        let alone = if rows.shape()[1] <= Self::SHORT { [short, long] } else { [long, short] };
        if clusters && Self::blocks(rows, Self::SHARED) > 1 {
            choices.push(&cluster);
        }
        alone.iter().for_each(|t| choices.push(t));
        if clusters {
            choices.push(&cluster);
        }
    }

    /// Blocks of a cluster: as many as keep a row in shared memory, nearly, and as keep the GPU busy.
    fn blocks(rows: &Tensor, room: u32) -> u32 {
        let bytes = rows.shape()[1] as u64 * rows.dtype.bytes() as u64;
        let mut blocks = 1;
        while blocks < u64::from(CLUSTER) {
            let full = bytes / blocks > u64::from(room) * 5 / 4;
            let idle = rows.shape()[0] as u64 * blocks < Self::BUSY && bytes / blocks > Self::WORTH;
            if !full && !idle {
                break;
            }
            blocks *= 2;
        }
        blocks as u32
    }

    /// The layout of a tactic. `sorted`: values that are sorted; `mass`: masses are summed, not only elements.
    pub(crate) fn new(rows: &Tensor, tactic: &Tactic, sorted: u32, mass: bool) -> Self {
        let [threads, cluster, ..] = tactic.0;
        let (count, cols, element) = (rows.shape()[0], rows.shape()[1] as u64, rows.dtype.bytes() as u64);
        let list = (8 * cols.min(Self::LISTED) as u32).next_multiple_of(VECTOR).max(8 * sorted);
        let room = if cluster == 1 { Self::SHARED } else { Self::ALONE } - if mass { Self::MASS } else { 0 } - list;
        let blocks = if cluster == 1 { Self::blocks(rows, room) } else { 1 };
        // A row that begins within a vector reaches into one more.
        let vectors = (cols * element).div_ceil(u64::from(VECTOR)) + 1;
        let resident = vectors.div_ceil(u64::from(blocks)).min(u64::from(room / VECTOR)) as u32;
        let tie_bits = (64 - (cols - 1).leading_zeros()) as i32;
        Self { rows: count as u32, blocks, threads, tie_bits, list, resident }
    }

    /// The launch.
    pub(crate) fn launch(&self, params: Params) -> Launch {
        let shared = self.list + self.resident * VECTOR;
        Launch::new(params, [self.rows * self.blocks, 1, 1], self.threads).shared(shared).cluster(self.blocks)
    }
}

/// The indices of a row, the greatest element first: NaN before everything, of equal ones the first, or the last if
/// `late`.
pub(crate) fn ranked(row: &[f64], late: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    if late {
        order.reverse();
    }
    let above =
        |a: f64, b: f64| b.is_nan().cmp(&a.is_nan()).then(b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal));
    order.sort_by(|a, b| above(row[*a], row[*b]));
    order
}

/// Scores of rows that differ in kind: any, many equal ones, many -inf, nothing but one number.
pub(crate) fn draw_scores(draw: &mut Draw<'_>, name: &str, cols: i64) {
    let Some(x) = draw.tensors.get_mut(name) else { return };
    for (i, row) in x.chunks_exact_mut(cols as usize).enumerate() {
        for v in row.iter_mut() {
            match i % 4 {
                1 => *v = (*v * 4.0).round() / 4.0,
                2 if draw.random.below(3) > 0 => *v = f64::NEG_INFINITY,
                3 => *v = if i % 8 == 3 { f64::NEG_INFINITY } else { 1.5 },
                _ => {}
            }
        }
    }
}

/// Probabilities of rows that differ in kind: any, many equal ones, many zeros, all equal.
pub(crate) fn draw_probs(draw: &mut Draw<'_>, name: &str, cols: i64) {
    draw_scores(draw, name, cols);
    let Some(x) = draw.tensors.get_mut(name) else { return };
    for row in x.chunks_exact_mut(cols as usize) {
        row.iter_mut().for_each(|v| *v = v.exp());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|v| *v /= if sum > 0.0 { sum } else { 1.0 });
    }
}

/// The k of each row: those of a tensor or that of all, at least 1 and at most all.
pub(crate) fn top_ks(problem: &Problem, rows: usize, cols: usize) -> Vec<usize> {
    let given = problem.inputs.get("top_ks");
    let k = |row| given.map_or(problem.scalars["top_k"], |all| all[row]);
    (0..rows).map(|row| (k(row).max(1.0) as usize).min(cols)).collect()
}

/// A k for each row, also such as are no number of elements.
pub(crate) fn draw_top_ks(draw: &mut Draw<'_>, cols: i64) {
    let Some(k) = draw.tensors.get_mut("top_ks") else { return };
    let choices = [0, 1, 2, 10, cols / 2, cols - 1, cols, cols + 1, -3];
    k.iter_mut().for_each(|k| *k = choices[draw.random.below(9) as usize] as f64);
}

/// What is kept of a row, over its sum; the rest is 0.
pub(crate) fn renormed(row: &[f64], kept: &[usize]) -> Vec<f64> {
    let sum: f64 = kept.iter().map(|i| row[*i]).sum();
    let mut out = vec![0.0; row.len()];
    kept.iter().filter(|_| sum > 0.0).for_each(|i| out[*i] = row[*i] / sum);
    out
}

/// The indices of the k greatest scores of each row of `lengths[row]` scores, in their order.
pub(crate) fn taken(problem: &Problem) -> Vec<Vec<usize>> {
    let (max_len, k) = (problem.dims["max_len"] as usize, problem.dims["k"] as usize);
    let rows = problem.inputs["input"].chunks_exact(max_len).zip(&problem.inputs["lengths"]);
    let taken = rows.map(|(row, length)| {
        let mut taken = ranked(&row[..(length.max(0.0) as usize).min(max_len)], problem.scalars["tie_break"] == 2.0);
        taken.truncate(k);
        taken.sort_unstable();
        taken
    });
    taken.collect()
}

/// A length for each row, also such as are none.
pub(crate) fn draw_lengths(draw: &mut Draw<'_>) {
    let (max_len, k) = (draw.dims["max_len"], draw.dims["k"]);
    let Some(lengths) = draw.tensors.get_mut("lengths") else { return };
    let choices = [max_len, max_len / 2, k, k + 1, 0, 1, -2, max_len + 3];
    lengths.iter_mut().for_each(|n| *n = choices[draw.random.below(8) as usize] as f64);
}
