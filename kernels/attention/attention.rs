//! What the ops of attention share: tiles, the plan, and inputs that mean something.

use crate::binding::{Checked, Draw, Tensor, Wrong};

/// Elements of a key of multi-head latent attention: the latent, which is the value, and what carries the position.
pub(crate) const LATENT: i64 = 512 + 64;

/// How queries and keys are cut into tiles, as `AttentionTile` in batch_attention.cuh and `MlaTile` in mla_attention.cuh
/// have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    /// Rows of queries.
    pub rows: i64,
    /// Keys.
    pub keys: i64,
    /// Threads of a block.
    pub threads: i64,
    /// Blocks of a multiprocessor that the work is shared out for.
    pub blocks: i64,
}

impl Tile {
    /// Of so many rows, and keys of so many elements.
    pub(crate) fn new(rows: i64, qk_dim: i64) -> Self {
        let (keys, threads) = match (rows, qk_dim) {
            (16, LATENT) => (32, 128),
            (_, LATENT) => (64, 256),
            // Four sets of warps take 16 keys each; two where rows are so long that shared memory has no room for more.
            (16, ..=192) => (64, 128),
            (16, _) => (32, 64),
            (_, ..=64) => (128, 128),
            (_, ..=128) => (64, 128),
            _ => (32, 128),
        };
        let blocks = match (rows, qk_dim) {
            (16, LATENT | 192) => 2,
            (16, _) => 3,
            (_, LATENT) => 1,
            _ => 2,
        };
        Self { rows, keys, threads, blocks }
    }

    /// The one that the scalar `rows` asks for, or that suits the mean length of requests.
    pub(crate) fn of(asked: i64, tokens: i64, batch: i64, group: i64, qk_dim: i64) -> Self {
        let mean = tokens.saturating_mul(group) / batch.max(1);
        let rows = match (asked, mean) {
            (0, ..=16) => 16,
            (0, ..=64) => 64,
            (0, _) if qk_dim > 192 => 64,
            (0, _) => 128,
            (some, _) => some,
        };
        Self::new(rows, qk_dim)
    }
}

/// `rows` is that of a tile that exists.
pub(crate) fn check_rows(rows: i64, qk_dim: i64, wrong: &mut Wrong) {
    let legal: &[i64] = if qk_dim > 192 { &[0, 16, 64] } else { &[0, 16, 64, 128] };
    if !legal.contains(&rows) {
        let list = legal.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        wrong.add("rows", "value", format!("one of {list}"), rows.to_string());
    }
}

/// Heads of queries for each head of keys; nothing, and a word about it, if they do not divide.
pub(crate) fn group(qo_heads: i64, kv_heads: i64, wrong: &mut Wrong) -> Option<i64> {
    if qo_heads % kv_heads != 0 {
        wrong.add("qo_heads", "value", format!("a multiple of kv_heads = {kv_heads}"), qo_heads.to_string());
        return None;
    }
    Some(qo_heads / kv_heads)
}

/// Bytes of the widest access.
const VECTOR: u64 = 16;

/// Addresses and strides of these are multiples of the widest access.
pub(crate) fn check_aligned(call: &Checked<'_>, names: &[&'static str], wrong: &mut Wrong) {
    for name in names {
        let tensor = call.tensor(name);
        let got = tensor.alignment(VECTOR);
        if !tensor.is_empty() && got != VECTOR {
            wrong.add(name, "alignment", "addresses and strides of multiples of 16 bytes", format!("{got} bytes"));
        }
    }
}

/// Pages and their tokens are found by products of 32-bit numbers.
pub(crate) fn check_pages(call: &Checked<'_>, names: &[&'static str], wrong: &mut Wrong) {
    for &name in names {
        let tensor = call.tensor(name);
        if let Some(far) = [0, 1].into_iter().map(|d| bytes(tensor, d)).find(|b| !(0..1 << 32).contains(b)) {
            wrong.add(name, "strides", "from 0 to 2^32 bytes between pages and between tokens", far.to_string());
        }
    }
}

/// The stride of a dimension in bytes.
pub(crate) fn bytes(tensor: &Tensor, dim: usize) -> i64 {
    tensor.stride(dim) * tensor.dtype.bytes() as i64
}

/// What `Divisor` in work.cuh takes: exact for numbers below 2^31.
pub(crate) fn divisor(by: i64) -> (u32, i32) {
    if by == 1 {
        return (0, 0);
    }
    let bits = 64 - (by as u64 - 1).leading_zeros();
    ((1u64 << (31 + bits)).div_ceil(by as u64) as u32, bits as i32 - 1)
}

/// Without `qo_indptr` all requests have as many queries.
pub(crate) fn check_lengths(call: &Checked<'_>, tokens: i64, wrong: &mut Wrong) {
    let batch = call.dim("batch");
    if !call.given("qo_indptr") && (batch == 0 || tokens % batch != 0) && tokens > 0 {
        let expected = format!("a multiple of the {batch} requests, where qo_indptr is absent");
        wrong.add("tokens", "value", expected, tokens.to_string());
    }
}

/// Words of a plan, as work.cuh lays it out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Blocks that share the work.
    pub blocks: i64,
    /// Items that there is room for.
    pub capacity: i64,
}

const HEADER: i64 = 16;
const START: i64 = 4;
const ITEM: i64 = 12;

impl Layout {
    /// What a plan of so many words has room for.
    pub(crate) fn new(words: i64, blocks: i64, kv_heads: i64) -> Self {
        let rest = words - HEADER - START * (blocks + 1);
        let many = rest / (ITEM + kv_heads);
        // Tickets: one for each block at least.
        let capacity = if many * kv_heads >= blocks { many } else { (rest - blocks) / ITEM };
        Self { blocks, capacity: capacity.max(0) }
    }

    /// Words that a plan needs for so many items.
    pub(crate) fn words(blocks: i64, items: i64, kv_heads: i64) -> i64 {
        HEADER + START * (blocks + 1) + ITEM * items + (items * kv_heads).max(blocks)
    }

    fn items(self) -> usize {
        (HEADER + START * (self.blocks + 1)) as usize
    }

    fn tickets(self) -> usize {
        self.items() + (ITEM * self.capacity) as usize
    }
}

/// The most items that these shapes come to.
pub(crate) fn most_items(tokens: i64, batch: i64, group: i64, tile: Tile) -> i64 {
    tokens.saturating_mul(group) / tile.rows + batch
}

/// A plan that is too short is refused.
pub(crate) fn check_plan(words: i64, blocks: i64, items: i64, kv_heads: i64, wrong: &mut Wrong) {
    let needed = Layout::words(blocks, items, kv_heads);
    if words < needed || Layout::new(words, blocks, kv_heads).capacity < items {
        wrong.add("plan", "shape", format!("at least {needed} words for these shapes"), words.to_string());
    }
}

/// The lengths of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// Queries of each request.
    pub qo: Vec<i64>,
    /// Keys of each request.
    pub kv: Vec<i64>,
    /// The first token of each request.
    pub tokens: Vec<i64>,
    /// The first page of each request.
    pub pages: Vec<i64>,
}

impl Batch {
    /// From the tensors of a problem.
    pub(crate) fn new(tensor: impl Fn(&str) -> Option<Vec<i64>>, batch: i64, tokens: i64, page_size: i64) -> Self {
        let steps = |indptr: &[i64]| indptr.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
        let kv_indptr = tensor("kv_indptr").unwrap_or_default();
        let pages = steps(&kv_indptr);
        let last = tensor("kv_last_page_len").unwrap_or_else(|| vec![page_size; pages.len()]);
        let kv = pages.iter().zip(last).map(|(n, last)| if *n > 0 { (n - 1) * page_size + last } else { 0 }).collect();
        let even = || (0..=batch).map(|b| b * (tokens / batch.max(1))).collect();
        let qo_indptr = tensor("qo_indptr").unwrap_or_else(even);
        Self { qo: steps(&qo_indptr), kv, tokens: qo_indptr, pages: kv_indptr }
    }
}

/// Which keys query `i` sees: from the first to before the second.
pub(crate) fn seen(i: i64, qo_len: i64, kv_len: i64, causal: bool, window: i64) -> (i64, i64) {
    let own = i + kv_len - qo_len;
    let end = if causal { (own + 1).clamp(0, kv_len) } else { kv_len };
    (if window < 0 { 0 } else { (own - window).max(0) }, end)
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    pub tile: Tile,
    pub group: i64,
    pub kv_heads: i64,
    pub causal: bool,
    pub window: i64,
    pub split: i64,
}

/// Writes a plan into its words, as attention_plan.cuh does.
pub(crate) fn write_plan(plan: &mut [i64], batch: &Batch, how: Sharing, layout: Layout) {
    let Sharing { tile, group, kv_heads, causal, window, split } = how;
    let low = |n: i64| i64::from(n as i32);
    let high = |n: i64| n >> 32;
    let pieces_of = |tiles: i64| if split > 0 && tiles > 0 { (tiles + split - 1) / split } else { 1 };
    // Cost up to and with it, tiles.
    let (mut items, mut cost, mut pieces): (Vec<(i64, i64)>, i64, i64) = (Vec::new(), 0, 0);
    for (request, (qo_len, kv_len)) in batch.qo.iter().zip(&batch.kv).enumerate() {
        let rows = qo_len.max(&0) * group;
        for index in 0..(rows + tile.rows - 1) / tile.rows {
            if items.len() as i64 == layout.capacity {
                break;
            }
            let (begin, stop) = (index * tile.rows, ((index + 1) * tile.rows).min(rows));
            let (first, _) = seen(begin / group, *qo_len, *kv_len, causal, window);
            let (_, end) = seen((stop - 1) / group, *qo_len, *kv_len, causal, window);
            let first_tile = first / tile.keys;
            let tiles = if end > first { (end + tile.keys - 1) / tile.keys - first_tile } else { 0 };
            cost += (tiles + 1) * kv_heads;
            let at = layout.items() + items.len() * ITEM as usize;
            let words = [
                [low(cost), high(cost), low(pieces), high(pieces)],
                [request as i64, index, first_tile, tiles],
                [batch.tokens[request], *qo_len, *kv_len, batch.pages[request]],
            ];
            plan[at..at + ITEM as usize].copy_from_slice(&words.concat());
            pieces += pieces_of(tiles) * kv_heads;
            items.push((cost, tiles));
        }
    }
    let per = if cost > 0 { (cost + layout.blocks - 1) / layout.blocks } else { 1 };
    for block in 0..=layout.blocks {
        let position = (per * block).min(cost);
        let mut item = items.partition_point(|(end, _)| *end <= position);
        let (mut head, mut offset) = (0, 0);
        if let Some((end, tiles)) = items.get(item) {
            let into = position - (end - (tiles + 1) * kv_heads);
            (head, offset) = (into / (tiles + 1), into % (tiles + 1));
            if split > 0 {
                offset = (offset + split - 1) / split * split;
                if offset >= *tiles && offset > 0 {
                    (head, offset) = (head + 1, 0);
                    if head == kv_heads {
                        (item, head) = (item + 1, 0);
                    }
                }
            }
        }
        let at = (HEADER + START * block) as usize;
        plan[at..at + 4].copy_from_slice(&[item as i64, head, offset, 0]);
    }
    let tickets = if split > 0 { items.len() as i64 * kv_heads } else { layout.blocks };
    plan[layout.tickets()..layout.tickets() + tickets as usize].fill(0);
    let count = items.len() as i64;
    let header = [low(cost), high(cost), low(per), high(per), count, tile.rows, tile.keys, layout.blocks];
    plan[..8].copy_from_slice(&header);
    plan[8..16].copy_from_slice(&[split, layout.capacity, 0, 0, 0, 0, 0, 0]);
}

/// Requests of all lengths, none among them, in pages of their own in any order; pages that are in no request hold
/// numbers too.
pub(crate) fn draw_batch(draw: &mut Draw<'_>, tokens: i64, kv_pages: i64, pages: i64, page_size: i64) {
    let batch = draw.dims["batch"];
    let mut cuts = |total: i64| {
        let mut indptr: Vec<i64> = (0..=batch).map(|_| draw.random.below(total as u64 + 1) as i64).collect();
        indptr.sort_unstable();
        if let Some(first) = indptr.first_mut() {
            *first = 0;
        }
        if let Some(last) = indptr.last_mut().filter(|_| batch > 0) {
            *last = total;
        }
        indptr
    };
    let (qo, kv) = (cuts(tokens), cuts(kv_pages));
    let last: Vec<f64> = kv
        .windows(2)
        .map(|w| if w[0] == w[1] { 0.0 } else { 1.0 + draw.random.below(page_size as u64) as f64 })
        .collect();
    let mut order: Vec<i64> = (0..pages.max(kv_pages)).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, draw.random.below(i as u64 + 1) as usize);
    }
    let floats = |v: &[i64]| v.iter().map(|x| *x as f64).collect::<Vec<_>>();
    let indices = floats(&order[..kv_pages as usize]);
    for (name, values) in
        [("qo_indptr", floats(&qo)), ("kv_indptr", floats(&kv)), ("kv_indices", indices), ("kv_last_page_len", last)]
    {
        if let Some(tensor) = draw.tensors.get_mut(name) {
            *tensor = values;
        }
    }
}
