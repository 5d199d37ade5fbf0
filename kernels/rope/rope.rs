//! What the launchers of the rotary embeddings share: accesses, how heads are shared out to threads, and the grid.

use crate::binding::{Checked, Choices, Draw, Launch, Params, Problem, Tensor, Wrong};

/// Bytes of a full vector.
pub(crate) const VECTOR: u32 = 16;
const BLOCK: u32 = 256;
/// Threads that keep a large GPU busy: a thread takes a second head only if there are more.
const BUSY: i64 = 1 << 18;

/// Offers vectors if each of these, alignments or sizes in bytes or values, allows it, and single elements in any case.
pub(crate) fn select(element: usize, vectors: bool, choices: &mut Choices) {
    if vectors {
        choices.push(&[VECTOR]);
    }
    choices.push(&[element as u32]);
}

/// Whether a tensor may be accessed by so many bytes. One that is absent is not accessed.
pub(crate) fn aligned(tensor: &Tensor, bytes: u64) -> bool {
    tensor.is_empty() || tensor.alignment(bytes) == bytes
}

/// How many threads share the heads of a token, if each of `units` threads takes at most `most` heads.
pub(crate) fn groups(tokens: i64, heads: i64, units: i64, most: i64) -> i64 {
    let each = (tokens.saturating_mul(heads).saturating_mul(units) / BUSY).clamp(1, most);
    heads.div_euclid(each) + i64::from(heads % each != 0)
}

/// Threads are numbered with 32 bits. Elements that are accessed one by one need the most of them.
pub(crate) fn check_threads(call: &Checked<'_>, argument: &str, per_token: i64, wrong: &mut Wrong) {
    let (tokens, most) = (call.dim("tokens"), i64::from(u32::MAX - BLOCK) / per_token.max(1));
    if tokens > most {
        wrong.add(argument, "shape", format!("tokens up to {most} with heads of this size"), tokens.to_string());
    }
}

/// So many threads.
pub(crate) fn launch(params: Params, threads: u32) -> Launch {
    Launch::new(params, [threads.div_ceil(BLOCK), 1, 1], BLOCK)
}

/// The reference of all that turn by a cache of sines: heads of `columns`, the first rotary_dim of them turned.
pub(crate) fn turned(problem: &Problem, values: &[f64], columns: usize, positions: &str) -> Vec<f64> {
    let (cache, positions) = (&problem.inputs["cos_sin_cache"], &problem.inputs[positions]);
    let (rotary_dim, rows) = (problem.dims["rotary_dim"] as usize, problem.dims["max_position"]);
    let interleave = problem.scalars["interleave"] != 0.0;
    let mut values = values.to_vec();
    let row = values.len() / positions.len().max(1);
    for (heads, position) in values.chunks_exact_mut(row.max(1)).zip(positions.iter().map(|p| *p as i64)) {
        if position < 0 || position >= rows {
            continue;
        }
        let (cosines, sines) = cache[position as usize * rotary_dim..][..rotary_dim].split_at(rotary_dim / 2);
        for head in heads.chunks_exact_mut(columns) {
            for (i, (cosine, sine)) in cosines.iter().zip(sines).enumerate() {
                let (a, b) = if interleave { (2 * i, 2 * i + 1) } else { (i, i + rotary_dim / 2) };
                let (x, y) = (head[a], head[b]);
                (head[a], head[b]) = (x * cosine - y * sine, y * cosine + x * sine);
            }
        }
    }
    values
}

/// Positions, some of them without a row, and a cache of cosines and sines.
pub(crate) fn draw(draw: &mut Draw<'_>, positions: &str) {
    let rows = draw.dims["max_position"];
    for (i, position) in draw.tensors.get_mut(positions).into_iter().flatten().enumerate() {
        *position = match i % 11 {
            9 => -1.0,
            10 => rows as f64,
            _ => draw.random.below(rows as u64) as f64,
        };
    }
    let half = (draw.dims["rotary_dim"] / 2).max(1) as usize;
    for row in draw.tensors.get_mut("cos_sin_cache").into_iter().flat_map(|c| c.chunks_exact_mut(2 * half)) {
        for i in 0..half {
            (row[half + i], row[i]) = (draw.random.uniform() * 6.3).sin_cos();
        }
    }
}

/// `first · step^i`, two numbers each: it as an f32, and what that leaves.
pub(crate) fn powers<const N: usize>(first: f64, step: f64) -> [f32; N] {
    let mut table = [0.0; N];
    let mut power = first;
    for pair in table.chunks_exact_mut(2) {
        pair[0] = power as f32;
        pair[1] = (power - f64::from(pair[0])) as f32;
        power *= step;
    }
    table
}
