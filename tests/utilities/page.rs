//! Paged caches against their references: bytes are moved, so all is exact.

use crate::harness::{Case, gpu, pairs};

const DTYPES: [&str; 6] = ["f16", "bf16", "f32", "e4m3", "e5m2", "u8"];

/// Tokens, heads, head size, page size.
const SHAPES: &[[i64; 4]] =
    &[[0, 2, 64, 16], [1, 1, 1, 1], [17, 4, 64, 5], [9, 3, 80, 16], [33, 2, 7, 8], [40, 1, 128, 64]];
const LARGE: &[[i64; 4]] = &[[127, 8, 128, 16], [577, 4, 256, 8], [4096, 8, 128, 16]];

fn shapes() -> impl Iterator<Item = [i64; 4]> {
    SHAPES.iter().chain(if gpu() { LARGE } else { &[] }).copied()
}

fn paged(op: &str, dtype: &str, tokens: i64, page_size: i64, batch: i64) -> Case {
    let kv_pages = tokens / page_size + batch + 1;
    Case::new(op).axis("dtype", dtype).dims(&[
        ("tokens", tokens),
        ("page_size", page_size),
        ("kv_pages", kv_pages),
        // Fewer than are named: some names are holes.
        ("pages", kv_pages - 1),
        ("batch", batch),
    ])
}

#[test]
fn append_paged_kv_cache_is_right() {
    for (i, ([tokens, heads, head_dim, page_size], dtype)) in pairs(&shapes().collect::<Vec<_>>(), &DTYPES).enumerate()
    {
        let case = paged("append_paged_kv_cache", dtype, tokens, page_size, (i % 4) as i64);
        case.dims(&[("heads", heads), ("head_dim", head_dim)]).seed(i as u64).strided([0, 16, 3][i % 3], i % 2).check();
    }
}

#[test]
fn append_paged_mla_kv_cache_is_right() {
    for (i, ([tokens, _, _, page_size], dtype)) in pairs(&shapes().collect::<Vec<_>>(), &DTYPES).enumerate() {
        let (ckv_dim, kpe_dim) = [(512, 64), (48, 16), (9, 5)][i % 3];
        let case = paged("append_paged_mla_kv_cache", dtype, tokens, page_size, 3);
        case.dims(&[("ckv_dim", ckv_dim), ("kpe_dim", kpe_dim)])
            .seed(i as u64)
            .strided([0, 16, 3][i / 3 % 3], 0)
            .check();
    }
}

#[test]
fn copy_blocks_is_right() {
    for (i, (block, dtype)) in pairs(&[1i64, 100, 128, 4096], &DTYPES).enumerate() {
        let case = Case::new("copy_blocks").axis("dtype", dtype).seed(i as u64);
        case.dims(&[("blocks", 9 + i as i64 % 3), ("block", block), ("pairs", i as i64 % 7)]).check();
    }
}

#[test]
fn embedding_is_right() {
    for (i, (hidden, dtype)) in pairs(&[1i64, 100, 128, 4096], &["f16", "bf16", "f32"]).enumerate() {
        let case = Case::new("embedding").axis("dtype", dtype).axis("index", ["i32", "i64"][i % 2]).seed(i as u64);
        let dims = [("tokens", [40, 0, 9][i % 3]), ("vocab", [33, 1, 0, 1000][i / 2 % 4]), ("hidden", hidden)];
        case.dims(&dims).scalar("first", [0.0, 5.0][i % 2]).strided([0, 16, 1][i % 3], 0).check();
    }
}

#[test]
fn concat_mla_k_is_right() {
    for (i, (shape, dtype)) in
        pairs(&[(0i64, 2i64, 128i64, 64i64), (5, 128, 128, 64), (3, 3, 7, 5), (4, 9, 16, 32)], &DTYPES).enumerate()
    {
        let (tokens, heads, nope_dim, rope_dim) = shape;
        let dims = [("tokens", tokens), ("heads", heads), ("nope_dim", nope_dim), ("rope_dim", rope_dim)];
        Case::new("concat_mla_k").axis("dtype", dtype).dims(&dims).strided([0, 16, 1][i % 3], 0).seed(i as u64).check();
    }
}

#[test]
fn batch_indices_and_lengths_are_right() {
    for (seed, (nnz, batch)) in pairs(&[0i64, 1, 100, 5000], &[0i64, 1, 7, 300]).enumerate() {
        let case = Case::new("get_batch_indices_positions").dims(&[("nnz", nnz), ("batch", batch)]);
        case.seed(seed as u64).check();
        let case = Case::new("get_seq_lens").dims(&[("batch", batch)]).scalar("page_size", [1.0, 16.0, 64.0][seed % 3]);
        case.seed(seed as u64).check();
    }
}
