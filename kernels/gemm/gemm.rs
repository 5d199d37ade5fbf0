//! What the ops of the family share: tiles, what they cost, how operands may lie, factors, activations.

use super::activation::{normal_distribution, sigmoid};
use crate::binding::{Checked, Tensor, TensorMap, Wrong};
use crate::params::pb_tensor_map;
use parbake_model::dtype::DType;
use std::f64::consts::PI;

/// The tactic `load`, as in shape.cuh.
pub(crate) const BY_K: u32 = 0;
pub(crate) const BY_N: u32 = 1;
pub(crate) const ONE_BY_ONE: u32 = 2;

/// The tactic `path`.
pub(crate) const PORTABLE: u32 = 0;
pub(crate) const HOPPER: u32 = 1;

/// Elements along k that share a factor.
pub(crate) const BLOCK: i64 = 128;

/// How a tile is computed, as `GemmShape` in shape.cuh has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    /// The value of the tactic.
    pub id: u32,
    /// Rows and columns of the result.
    pub rows: i64,
    pub columns: i64,
    /// Threads of a block.
    pub threads: u32,
    /// Elements along k of a stage.
    pub depth: i64,
    /// Bytes of a row in a stage.
    pub line: i64,
    /// Stages in shared memory.
    pub stages: i64,
    /// Percent of what mma.sync does at best that the main loop reaches where nothing else holds it up.
    pub percent: i64,
    /// Blocks of a multiprocessor that hide each other's waiting.
    pub together: i64,
    /// Whether it may be cut along k.
    pub cuts: bool,
}

impl Tile {
    /// The tile of that tactic for operands of so many bytes an element.
    pub(crate) fn of(id: u32, bytes: i64) -> Self {
        let narrow = bytes == 1;
        let (rows, columns) = match id {
            16 => (16, 64),
            64 => (64, 128),
            128 => (128, 128),
            257.. => (i64::from(id) - 256, 256),
            _ => (128, 256),
        };
        let line = if id > 64 && !narrow { 64 } else { 128 };
        let threads = if id == 256 || (id == 128 && narrow) || id == 256 + 64 { 256 } else { 128 };
        let stages = if id > 256 {
            2
        } else if id == 16 || line == 64 {
            4
        } else {
            3
        };
        let percent = match id {
            16 | 272 => 25,
            64 | 320 => 75,
            128 => 95,
            _ => 100,
        };
        Self { id, rows, columns, threads, depth: line / bytes, line, stages, percent, together: 3, cuts: true }
    }
    /// A tile of wgmma, as `HopperShape` in hopper.cuh has it. Of out: up to 64 rows and 128 columns, with the operands the
    /// other way round, or 128 rows.
    pub(crate) fn hopper(id: u32, bytes: i64) -> Self {
        const SIDE: i64 = 128;
        let side = i64::from(id);
        let (rows, columns) = if id <= 64 { (side, SIDE) } else { (SIDE, side) };
        let percent = match id {
            16 => 30,
            32 => 55,
            64 => 90,
            128 => 140,
            _ => 155,
        };
        let stages = if id == 256 { 4 } else { 6 };
        let (threads, depth, cuts) = (384, 128 / bytes, id < 256);
        Self { id, rows, columns, threads, depth, line: 128, stages, percent, together: 1, cuts }
    }
    /// Its dynamic shared memory: stages, and a panel of results for each of two groups.
    pub(crate) fn hopper_shared(&self) -> u32 {
        let panel = if self.id <= 64 { self.rows * (64 * 4 + 16) } else { 64 * (32 * 4 + 32) };
        self.shared() + 1024 + 2 * panel as u32
    }
    /// Dynamic shared memory.
    pub(crate) fn shared(&self) -> u32 {
        (self.stages * (self.rows + self.columns) * self.line) as u32
    }
    /// Elements.
    pub(crate) fn size(&self) -> i64 {
        self.rows * self.columns
    }
}

/// The tiles there are for operands of so many bytes an element, for those that are loaded in vectors.
pub(crate) fn tiles(bytes: i64) -> &'static [u32] {
    if bytes == 1 { &[16, 64, 128] } else { &[16, 64, 128, 256] }
}

/// How both operands may be loaded: 16 bytes at once if all rows allow that. `a` is [.., rows, k], `b` [.., n, k].
pub(crate) fn load(a: &Tensor, b: &Tensor) -> u32 {
    let width = a.dtype.bytes() as i64;
    let last = a.shape().len() - 1;
    let whole = |n: i64| (n * width) % 16 == 0;
    // Whether the dimension is dense, its extent and all other steps are multiples of 16 bytes, and so is the address.
    let by = |t: &Tensor, dense: usize| {
        let others = (0..t.shape().len()).filter(|d| *d != dense && t.shape()[*d] > 1).all(|d| whole(t.stride(d)));
        let side_by_side = t.stride(dense) == 1 || t.shape()[dense] <= 1;
        t.is_empty() || (others && side_by_side && whole(t.shape()[dense]) && (t.data as u64).is_multiple_of(16))
    };
    let n = b.shape().len() - 2;
    if by(a, last) && by(b, b.shape().len() - 1) {
        BY_K
    } else if width == 2 && by(a, last) && by(b, n) {
        BY_N
    } else {
        ONE_BY_ONE
    }
}

/// Whether a map can describe a tensor; `load` has looked at the alignment of its rows.
pub(crate) fn has_map(t: &Tensor) -> bool {
    const MOST: i64 = 1 << 32;
    let mut steps = (0..t.shape().len()).filter(|d| t.shape()[*d] > 1).map(|d| bytes(t, d));
    t.shape().iter().all(|n| (1..MOST).contains(n)) && steps.all(|step| step > 0 && step < MOST << 8)
}

/// The map of an operand [rows, k] or [batch, rows, k] whose rows in memory are along k, or along the other dimension, in
/// boxes of so many of these rows.
pub(crate) fn map(t: &Tensor, by_k: bool, rows: i64) -> pb_tensor_map {
    let k = t.shape().len() - 1;
    let (inner, outer) = if by_k { (k, k - 1) } else { (k - 1, k) };
    let (batch, step) = if k == 2 { (t.shape()[0], bytes(t, 0)) } else { (1, 0) };
    TensorMap {
        data: t.data,
        bytes: t.dtype.bytes() as u64,
        dims: [t.shape()[inner], t.shape()[outer], batch].map(|n| n as u64),
        strides: [bytes(t, outer), step].map(|n| n as u64),
        rows: rows as u32,
    }
    .described()
}

/// The tile of a tactic `tile`, `load`, `path`, and the maps of both operands in boxes of its rows.
pub(crate) fn tile_and_maps(a: &Tensor, b: &Tensor, [id, load, path]: [u32; 3]) -> (Tile, [pb_tensor_map; 2]) {
    let width = a.dtype.bytes() as i64;
    if path == PORTABLE {
        return (Tile::of(id, width), [NO_MAP; 2]);
    }
    let tile = Tile::hopper(id, width);
    // Rows that lie along n come 64 at a time.
    let b_map = if load == BY_N { map(b, false, 64) } else { map(b, true, tile.columns) };
    (tile, [map(a, true, tile.rows), b_map])
}

/// What stands in the place of a map where there is none.
pub(crate) const NO_MAP: pb_tensor_map = pb_tensor_map { words: [0; 16] };

/// The tiles of wgmma for a product.
pub(crate) fn hopper_tiles(a: &Tensor, b: &Tensor, load: u32) -> &'static [u32] {
    match load {
        ONE_BY_ONE => &[],
        _ if [a, b].iter().any(|t| t.dtype == DType::E5m2 || !has_map(t)) => &[],
        BY_N => &[128, 256],
        _ if a.dtype.bytes() == 1 => &[16, 32, 64, 128],
        _ => &[16, 32, 64, 128, 256],
    }
}

/// The stride of a dimension in bytes.
pub(crate) fn bytes(tensor: &Tensor, dim: usize) -> i64 {
    tensor.stride(dim) * tensor.dtype.bytes() as i64
}

/// Whether four elements side by side lie at a multiple of their size, in all rows.
pub(crate) fn wide(out: &Tensor) -> bool {
    out.alignment(4 * out.dtype.bytes() as u64) == 4 * out.dtype.bytes() as u64
}

/// What a product asks for, and what it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Tiles are chosen for so many rows, `groups` times.
    pub m: i64,
    pub n: i64,
    pub k: i64,
    pub groups: i64,
    /// Bytes of an element of the operands and of the result.
    pub bytes: i64,
    pub out_bytes: i64,
    pub processors: i64,
    /// Words for pieces along k, and tickets.
    pub room: i64,
    pub tickets: i64,
}

impl Work {
    pub(crate) fn tiles(&self, tile: Tile) -> i64 {
        self.groups * div_ceil(self.m, tile.rows) * div_ceil(self.n, tile.columns)
    }
    /// Stages along k of each of `pieces` pieces.
    pub(crate) fn stages(&self, tile: Tile, pieces: i64) -> i64 {
        div_ceil(div_ceil(self.k, tile.depth), pieces.max(1))
    }

    /// Clocks that a tile takes, by a model of the device: what tensor cores, both memories and a block's own latency ask
    /// for at least. The figures are those of an H100; for other devices the order of tiles is much the same.
    pub(crate) fn cost(&self, tile: Tile, pieces: i64) -> f64 {
        let f = |n: i64| n as f64;
        let (tiles, stages) = (self.tiles(tile), self.stages(tile, pieces));
        let blocks = tiles * pieces;
        let rounds = f(div_ceil(blocks, self.processors));
        // Products of 16-bit elements by mma.sync; those of 8 bits are widened, or twice as fast and summed twice.
        let of_tile = f(tile.size() * tile.depth * stages) / (1270.0 * f(tile.percent) / 100.0);
        let near = f(blocks * stages * (tile.rows + tile.columns) * tile.line) / 3000.0;
        let once =
            f(self.groups * (self.m + self.n) * self.k * self.bytes + self.groups * self.m * self.n * self.out_bytes);
        let far = once / 2200.0;
        // A stage that has to wait for memory; the others of the ring are under way meanwhile.
        let together = f(div_ceil(blocks, self.processors).min(tile.together));
        let wait = rounds / together * f(stages) * 900.0 / f(tile.stages - 1);
        let pieces_cost =
            if pieces > 1 { 1500.0 + f(blocks * tile.size() * 8) / 3000.0 + f(pieces) * 60.0 } else { 0.0 };
        let ends = rounds / together * (1500.0 + f(tile.size()) / 16.0);
        (rounds * of_tile).max(near).max(far).max(wait) + pieces_cost + ends
    }

    /// Into how many pieces along k a tile is best cut, and what it costs then.
    pub(crate) fn best(&self, tile: Tile) -> (i64, f64) {
        let (tiles, all) = (self.tiles(tile), div_ceil(self.k, tile.depth));
        let fits = |pieces: i64| tile.cuts && tiles <= self.tickets && pieces * tiles * tile.size() <= self.room;
        let mut best = (1, self.cost(tile, 1));
        for want in [2, 3, 4, 6, 8, 12, 16, 24, 32] {
            // No piece without a stage.
            let pieces = div_ceil(all, div_ceil(all, want).max(1));
            if pieces < 2 || !fits(pieces) {
                continue;
            }
            let cost = self.cost(tile, pieces);
            if cost < best.1 {
                best = (pieces, cost);
            }
        }
        best
    }

    /// The tiles, best first.
    pub(crate) fn order(&self) -> ([u32; 4], usize) {
        self.order_of(tiles(self.bytes), Tile::of)
    }
    /// Of these, best first; and how many they are.
    pub(crate) fn order_of<const N: usize>(&self, ids: &[u32], of: fn(u32, i64) -> Tile) -> ([u32; N], usize) {
        let mut list = [(0, f64::INFINITY); N];
        for (entry, &id) in list.iter_mut().zip(ids) {
            *entry = (id, self.best(of(id, self.bytes)).1);
        }
        list.sort_by(|a, b| a.1.total_cmp(&b.1));
        (list.map(|e| e.0), ids.len())
    }
}

/// Rounded up.
pub(crate) fn div_ceil(n: i64, by: i64) -> i64 {
    (n + by - 1) / by
}

/// Where the factors of an operand are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
    pub data: *const std::ffi::c_void,
    /// In elements; 0 where there is one factor.
    pub batch: i64,
    pub row: i64,
    pub k: i64,
    /// Rows that share one, as a power of two.
    pub shift: i32,
}

impl Scales {
    /// Of a tensor [batch, rows, blocks] or [rows, blocks] for an operand of so many rows.
    pub(crate) fn new(tensor: &Tensor, rows: i64) -> Self {
        if tensor.is_empty() {
            return Self { data: std::ptr::null(), batch: 0, row: 0, k: 0, shift: 0 };
        }
        let last = tensor.shape().len() - 1;
        let step = |dim: usize| if tensor.shape()[dim] > 1 { tensor.stride(dim) } else { 0 };
        let shift = if tensor.shape()[last - 1] == rows { 0 } else { 7 };
        let batch = if last == 2 { step(0) } else { 0 };
        Self { data: tensor.data, batch, row: step(last - 1), k: step(last), shift }
    }
}

/// The factors of an operand with so many rows: [batch, rows, blocks] or [rows, blocks].
pub(crate) fn check_scales(call: &Checked<'_>, name: &str, batch: i64, rows: i64, k: i64, wrong: &mut Wrong) {
    let tensor = call.tensor(name);
    if tensor.is_absent() {
        return;
    }
    let (got, last) = (tensor.shape(), tensor.shape().len() - 1);
    let (of_rows, of_k) = (got[last - 1], got[last]);
    let narrow = call.tensor("a").dtype.bytes() == 1;
    let (groups, blocks) = (div_ceil(rows, BLOCK), div_ceil(k, BLOCK));
    if last == 2 && got[0] != 1 && got[0] != batch {
        wrong.add(name, "shape", format!("1 or {batch} in dimension 0"), got[0].to_string());
    }
    if ![1, rows, groups].contains(&of_rows) {
        let expected = format!("1, {rows} (one for each row) or {groups} (one for 128 rows) in dimension {}", last - 1);
        wrong.add(name, "shape", expected, of_rows.to_string());
    }
    if of_k != 1 && (of_k != blocks || !narrow) {
        let several = if narrow { format!(" or {blocks} (one for 128 elements)") } else { String::new() };
        wrong.add(name, "shape", format!("1{several} in dimension {last}"), of_k.to_string());
    } else if name == "b_scale" && of_k > 1 && of_rows == rows && rows > 1 {
        let expected = format!("1 or {groups} in dimension {}, where factors change along k", last - 1);
        wrong.add(name, "shape", expected, of_rows.to_string());
    }
    if of_rows > 1 && of_rows.saturating_mul(tensor.stride(last - 1)) > i64::from(i32::MAX) {
        let step = tensor.stride(last - 1).to_string();
        wrong.add(name, "stride", "factors that are less than 2^31 elements apart", step);
    }
}

/// The factor of a row and an element along k of a reference's tensor [batch, rows, blocks].
pub(crate) fn factor(scales: Option<&Vec<f64>>, shape: [i64; 3], rows: i64, at: [i64; 3]) -> f64 {
    let Some(scales) = scales.filter(|s| !s.is_empty()) else { return 1.0 };
    let batch = if shape[0] == 1 { 0 } else { at[0] };
    let row = if shape[1] == 1 {
        0
    } else if shape[1] == rows {
        at[1]
    } else {
        at[1] / BLOCK
    };
    let block = if shape[2] == 1 { 0 } else { at[2] / BLOCK };
    scales[((batch * shape[1] + row) * shape[2] + block) as usize]
}

/// The scalar `activation` in float64.
pub(crate) fn activation(kind: i64, x: f64) -> f64 {
    match kind {
        1 => x * sigmoid(x),
        2 => x * normal_distribution(x),
        3 => x * sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)),
        4 if x < 0.0 => 0.0,
        _ => x,
    }
}
