//! What launchers and references of paged caches share: accesses, the grid, and where a token goes.

use crate::binding::{Choices, Draw, Launch, Params, Problem, Tensor, Wrong};

/// Bytes of a full vector.
const VECTOR: i64 = 16;
const BLOCK: u32 = 256;
/// Threads that keep a large GPU busy: a thread takes a second head only if there are more.
const BUSY: i64 = 1 << 17;

/// Offers vectors if all tensors allow them, whose dense parts have so many elements, and single elements in any case.
pub(crate) fn select(tensors: &[&Tensor], dense: &[i64], choices: &mut Choices) {
    let element = tensors[0].dtype.bytes() as i64;
    let aligned = tensors.iter().all(|t| t.is_empty() || t.alignment(VECTOR as u64) == VECTOR as u64);
    if aligned && dense.iter().all(|n| n * element % VECTOR == 0) {
        choices.push(&[VECTOR as u32]);
    }
    choices.push(&[element as u32]);
}

/// The stride of a dimension in bytes.
pub(crate) fn bytes(tensor: &Tensor, dim: usize) -> i64 {
    tensor.stride(dim) * tensor.dtype.bytes() as i64
}

/// How many threads share `parts`, if each of `others` threads takes at most `most` of them.
pub(crate) fn groups(parts: i64, others: i64, most: i64) -> i64 {
    let each = (parts.saturating_mul(others) / BUSY).clamp(1, most);
    parts / each + i64::from(parts % each != 0)
}

/// Threads are numbered with 32 bits. Elements that are moved one by one need the most of them.
pub(crate) fn check_threads(argument: &str, rows: i64, per_row: i64, wrong: &mut Wrong) {
    let most = i64::from(u32::MAX - BLOCK) / per_row.max(1);
    if rows > most {
        wrong.add(argument, "shape", format!("up to {most} rows of this size"), rows.to_string());
    }
}

/// So many threads.
pub(crate) fn launch(params: Params, threads: u32) -> Launch {
    Launch::new(params, [threads.div_ceil(BLOCK), 1, 1], BLOCK)
}

/// Page and entry of each token, as page/slot.cuh has it.
fn slots(problem: &Problem) -> Vec<Option<(usize, usize)>> {
    let integers = |name: &str| problem.inputs[name].iter().map(|x| *x as i64).collect::<Vec<_>>();
    let (requests, positions) = (integers("batch_indices"), integers("positions"));
    let (indices, indptr) = (integers("kv_indices"), integers("kv_indptr"));
    let (pages, page_size) = (problem.dims["pages"], problem.dims["page_size"]);
    let slot = |(request, position): (&i64, &i64)| {
        let request = usize::try_from(*request).ok().filter(|r| r + 1 < indptr.len())?;
        let position = u64::try_from(*position).ok()? as i64;
        let i = indptr[request] + position / page_size;
        let page = *indices.get(usize::try_from(i).ok().filter(|_| i < indptr[request + 1])?)?;
        (page >= 0 && page < pages).then_some((page as usize, (position % page_size) as usize))
    };
    requests.iter().zip(&positions).map(slot).collect()
}

/// A cache [pages, page_size, ...] with the values [tokens, ...] in their slots.
pub(crate) fn appended(problem: &Problem, cache: &str, values: &[f64]) -> Vec<f64> {
    let mut cache = problem.inputs[cache].clone();
    let slots = slots(problem);
    let row = values.len() / slots.len().max(1);
    for (row, slot) in values.chunks_exact(row.max(1)).zip(slots) {
        if let Some((page, entry)) = slot {
            let at = (page * problem.dims["page_size"] as usize + entry) * row.len();
            cache[at..at + row.len()].copy_from_slice(row);
        }
    }
    cache
}

/// Elements that differ, where they are integers.
pub(crate) fn fill(draw: &mut Draw<'_>) {
    for values in draw.tensors.values_mut().filter(|values| values.iter().all(|v| *v == 0.0)) {
        values.iter_mut().for_each(|v| *v = draw.random.below(256) as f64);
    }
}

/// Requests with pages of their own, in any order, some without a page; tokens in slots of their own, some of none.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    fill(draw);
    let dim = |name: &str| draw.dims[name];
    let (tokens, batch, kv_pages) = (dim("tokens"), dim("batch"), dim("kv_pages"));
    let (pages, page_size) = (dim("pages"), dim("page_size"));
    let mut shuffled: Vec<i64> = (0..pages.max(kv_pages)).collect();
    for i in (1..shuffled.len()).rev() {
        shuffled.swap(i, draw.random.below(i as u64 + 1) as usize);
    }
    // Pages that do not exist are holes.
    let indices = shuffled.iter().take(kv_pages as usize).map(|p| if *p < pages { *p as f64 } else { -1.0 });
    let indices: Vec<f64> = indices.collect();
    let mut indptr: Vec<i64> = (0..=batch).map(|_| draw.random.below(kv_pages as u64 + 1) as i64).collect();
    indptr.sort_unstable();
    if let (Some(first), true) = (indptr.first_mut(), batch > 0) {
        *first = 0;
    }
    // All slots of all requests, in any order; tokens beyond them go nowhere.
    let mut places: Vec<(i64, i64)> = Vec::new();
    for (request, ends) in indptr.windows(2).enumerate() {
        places.extend((0..(ends[1] - ends[0]) * page_size).map(|position| (request as i64, position)));
    }
    for i in (1..places.len()).rev() {
        places.swap(i, draw.random.below(i as u64 + 1) as usize);
    }
    let place = |token: i64| match token % 9 {
        7 => (-1, 0),
        8 => (0, -1),
        _ => places.get(token as usize).copied().unwrap_or((batch, 0)),
    };
    let of = |name: &str| -> Vec<f64> {
        match name {
            "batch_indices" => (0..tokens).map(|t| place(t).0 as f64).collect(),
            "positions" => (0..tokens).map(|t| place(t).1 as f64).collect(),
            "kv_indices" => indices.clone(),
            _ => indptr.iter().map(|i| *i as f64).collect(),
        }
    };
    for name in ["batch_indices", "positions", "kv_indices", "kv_indptr"] {
        draw.tensors.insert(name.to_owned(), of(name));
    }
}
