//! What the quantisers share: how threads are laid over rows, rules of block scales, and the arithmetic of references.

use crate::binding::{Checked, Choices, Launch, Params, Problem, Tensor, Wrong};
use parbake_model::dtype::DType;

/// Most threads of a block, as in tile.cuh.
const BLOCK: i64 = 256;
/// Vectors of a thread.
const HELD: i64 = 4;
/// Bytes of a vector.
const VECTOR: i64 = 16;

/// How the threads of a grid are laid over rows; tile.cuh says what the numbers mean.
pub(crate) struct Deal {
    pub(crate) row_threads: i32,
    pub(crate) block_rows: i32,
    pub(crate) chunks: i32,
    pub(crate) down: i32,
}

impl Deal {
    /// For rows of so many columns of a type whose vectors count; `group` neighbouring columns stay within a warp.
    pub(crate) fn new(dtype: DType, columns: i64, group: i64) -> Self {
        let lanes = VECTOR / dtype.bytes() as i64;
        let span = (group / lanes).max(1);
        let vectors = (columns.max(1) as u64).div_ceil(lanes as u64).next_multiple_of(span as u64) as i64;
        let down = vectors <= BLOCK;
        let chunks = if down { 1 } else { (vectors as u64).div_ceil((BLOCK * HELD) as u64) as i64 };
        let row_threads = if down {
            vectors
        } else {
            (vectors as u64).div_ceil((chunks * HELD) as u64).next_multiple_of(span as u64) as i64
        };
        let block_rows = BLOCK / row_threads;
        Self {
            row_threads: row_threads as i32,
            block_rows: block_rows as i32,
            chunks: chunks as i32,
            down: i32::from(down),
        }
    }
    /// Blocks that cover so many rows.
    pub(crate) fn blocks(&self, rows: i64) -> i64 {
        let each = i64::from(self.block_rows) * if self.down == 1 { HELD } else { 1 };
        (rows as u64).div_ceil(each as u64) as i64 * i64::from(self.chunks)
    }
    /// Threads of a block.
    pub(crate) fn threads(&self) -> u32 {
        (self.row_threads * self.block_rows) as u32
    }
    /// The launch over so many rows.
    pub(crate) fn launch(&self, params: Params, rows: i64) -> Launch {
        Launch::new(params, [self.blocks(rows) as u32, 1, 1], self.threads().next_multiple_of(32))
    }
}

/// The values of the only tactic, `vec`: whole vectors where rows allow it, single elements anywhere.
pub(crate) fn select(wide: &Tensor, narrow: &Tensor, hidden: i64, share: i64, choices: &mut Choices) {
    if whole(wide, narrow, hidden, share) {
        choices.push(&[VECTOR as u32]);
    }
    choices.push(&[1]);
}

/// Whether rows of `wide` are whole vectors, and those of `narrow`, whose elements have 1 / `share` of the bytes.
pub(crate) fn whole(wide: &Tensor, narrow: &Tensor, hidden: i64, share: i64) -> bool {
    let part = (VECTOR / share) as u64;
    wide.alignment(VECTOR as u64) == VECTOR as u64
        && narrow.alignment(part) == part
        && hidden * wide.dtype.bytes() as i64 % VECTOR == 0
}

/// Linear scales; 0 and 1 are tiles of 128 and of 8 rows.
pub(crate) const LINEAR: i64 = 2;

/// Shape of the scales of `rows` x `hidden` elements.
pub(crate) fn scale_shape(rows: i64, hidden: i64, block: i64, layout: i64) -> [i64; 2] {
    let pad = |n: i64, to: u64| (n as u64).next_multiple_of(to) as i64;
    let columns = hidden / block;
    match layout {
        0 => [pad(rows, 128), pad(columns, 4)],
        1 => [pad(rows, 8), pad(columns, 4)],
        _ => [rows, columns],
    }
}

/// The rules of block scales: whole blocks, and the shape that the layout has.
pub(crate) fn check_scales(call: &Checked<'_>, hidden: i64, block: i64, wrong: &mut Wrong) {
    let (rows, layout) = (call.dim("rows"), call.int("layout"));
    if hidden % block != 0 {
        wrong.add("x", "shape", format!("rows of whole blocks of {block}"), format!("hidden = {hidden}"));
    }
    let scale = call.tensor("scale");
    let want = scale_shape(rows, hidden, block, layout);
    if scale.shape() != want {
        wrong.add("scale", "shape", format!("{want:?} for layout {layout}"), format!("{:?}", scale.shape()));
    } else if layout != LINEAR && want[0] > 1 && scale.stride(0) != want[1] {
        wrong.add("scale", "stride", format!("dense tiles: {}", want[1]), scale.stride(0).to_string());
    }
}

// ---- references -----------------------------------------------------------------------------------------------------

/// The largest magnitude: NaN does not count, an infinity counts as the largest finite number.
pub(crate) fn amax<'a>(values: impl IntoIterator<Item = &'a f64>) -> f32 {
    values.into_iter().fold(0f32, |most, v| most.max(v.abs() as f32)).min(f32::MAX)
}

/// The largest finite value of an 8-bit type.
pub(crate) fn largest(dtype: DType) -> f32 {
    if dtype == DType::E4m3 { 448.0 } else { 57344.0 }
}

/// The scale of a group.
pub(crate) fn scale(amax: f32, eps: f64, largest: f32) -> f32 {
    amax.max(eps as f32) / largest
}

/// The code of the smallest power of two, at least 2^-127, whose product with `largest` is not below `amax`.
pub(crate) fn exponent(amax: f32, largest: f32) -> u8 {
    let fits = |code: &u8| f64::from(amax) <= power_of_two(*code) * f64::from(largest);
    (0..=254).find(fits).expect("bug: the largest power of two fits everything")
}

/// What a UE8M0 code stands for.
pub(crate) fn power_of_two(code: u8) -> f64 {
    if code == 255 { f64::NAN } else { 2f64.powi(i32::from(code) - 127) }
}

/// A quantised value before it is rounded to its type.
pub(crate) fn quotient(x: f64, scale: f32) -> f64 {
    f64::from(x as f32 * (1.0 / scale))
}

const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The e2m1 code of a value: the nearest, of two the even one; NaN is +6.
pub(crate) fn e2m1(v: f64) -> u8 {
    if v.is_nan() {
        return 7;
    }
    let distance = |code: &u8| ((v.abs().min(6.0) - E2M1[usize::from(*code)]).abs(), code % 2);
    let code = (0..8u8).min_by(|a, b| distance(a).partial_cmp(&distance(b)).expect("bug: no NaN here"));
    code.expect("bug: eight codes") | if v.is_sign_negative() { 8 } else { 0 }
}

/// The value of an e2m1 code.
pub(crate) fn e2m1_value(code: u8) -> f64 {
    let v = E2M1[usize::from(code & 7)];
    if code & 8 == 0 { v } else { -v }
}

/// The code of a value of e4m3.
pub(crate) fn e4m3_code(v: f32) -> u8 {
    let mut raw = [0];
    DType::E4m3.store(f64::from(v), &mut raw);
    raw[0]
}

/// Where the scale of a row and block lies among `columns` scales a row.
pub(crate) fn scale_place(layout: i64, row: usize, block: usize, columns: usize) -> usize {
    let high = match layout {
        0 => 128,
        1 => 8,
        _ => return row * columns + block,
    };
    // Within a tile: 32 rows below each other, sets of them side by side, four scales each.
    let (tile, inner) = (row / high * (columns / 4) + block / 4, row % high);
    tile * high * 4 + inner % 32 * (high.div_ceil(32) * 4) + inner / 32 * 4 + block % 4
}

/// Rows of the input `x` in blocks: row, block, and its values.
pub(crate) fn blocks(problem: &Problem, hidden: usize, block: usize) -> impl Iterator<Item = (usize, usize, &[f64])> {
    let rows = problem.inputs["x"].chunks_exact(hidden).enumerate();
    rows.flat_map(move |(r, row)| row.chunks(block).enumerate().map(move |(b, values)| (r, b, values)))
}

/// Up to eight elements as bits of a byte.
pub(crate) fn packed(bits: &[f64], little: bool) -> f64 {
    let bit = |(i, x): (usize, &f64)| {
        if *x == 0.0 {
            0
        } else if little {
            1u8 << i
        } else {
            128 >> i
        }
    };
    f64::from(bits.iter().enumerate().map(bit).fold(0, |a, b| a | b))
}
