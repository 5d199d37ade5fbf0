//! Merges of attention states against their references. What is drawn has states of -inf among it, and rows of nothing
//! else: (0, -inf) and (0, -inf) are (0, -inf) everywhere (flashinfer#4051, #4054, #5262, vllm#28181, #39148).

use crate::harness::{Case, gpu, pairs};

const DTYPES: [&str; 3] = ["f16", "bf16", "f32"];

/// Rows, heads, head size.
const SHAPES: &[[i64; 3]] = &[[0, 2, 64], [1, 1, 1], [7, 4, 64], [5, 3, 80], [3, 5, 7], [2, 2, 512], [33, 32, 128]];
const LARGE: &[[i64; 3]] = &[[512, 16, 128], [4096, 32, 128], [70000, 1, 64]];

fn cases(op: &str) -> impl Iterator<Item = (usize, Case)> {
    let shapes: Vec<_> = SHAPES.iter().chain(if gpu() { LARGE } else { &[] }).copied().collect();
    let all: Vec<_> = pairs(&shapes, &DTYPES).collect();
    all.into_iter().enumerate().map(move |(i, ([rows, heads, head_dim], dtype))| {
        let case = Case::new(op).axis("dtype", dtype).dims(&[("rows", rows), ("heads", heads), ("head_dim", head_dim)]);
        (i, case.seed(i as u64).strided([0, 16, 3][i % 3], 0))
    })
}

#[test]
fn merge_state_is_right() {
    cases("merge_state").for_each(|(_, case)| case.check());
}

#[test]
fn merge_state_in_place_is_right() {
    cases("merge_state_in_place").for_each(|(i, case)| if i % 2 == 0 { case } else { case.with("mask") }.check());
}

/// One to four splits and many, none too (flashinfer#1661).
#[test]
fn merge_states_is_right() {
    cases("merge_states").for_each(|(i, case)| case.dims(&[("states", [1, 2, 3, 4, 9, 0][i % 6])]).check());
}
