//! Top-k: selection, transforms, masks and renormalisers. The rows of a trial differ in kind: normal, many equal elements,
//! many of -inf or 0, nothing but one number. What NaN does, and what needs other data, is in tests/gpu/topk.py.

use crate::harness::{Case, gpu, library};
use parbake::Place;
use parbake::trial::Trial;
use std::collections::BTreeMap;

const TYPES: [&str; 3] = ["f32", "bf16", "f16"];

/// Rows and their lengths: the peers' on a GPU, as far as the reference sorts them in reasonable time; all of them, and
/// larger ones, are in tests/gpu/topk.py.
fn shapes() -> Vec<(i64, i64)> {
    let (rows, lengths, most): (&[i64], &[i64], i64) = if gpu() {
        (&[1, 19, 99, 989], &[1, 7, 111, 500, 4096, 4097, 32000, 128_256], 150_000)
    } else {
        (&[1, 9], &[1, 7, 111, 500, 4097], i64::MAX)
    };
    let all = rows.iter().flat_map(|r| lengths.iter().map(|n| (*r, *n)));
    all.filter(|(r, n)| r * n <= most).collect()
}

/// A call; rows begin at a vector, are whole vectors apart, or begin anywhere.
fn case(op: &str, dtype: &str, dims: &[(&str, i64)], turn: usize) -> Case {
    let (pad, offset) = [(0, 0), (8, 0), (1, 3)][turn % 3];
    Case::new(op).axis("dtype", dtype).dims(dims).strided(pad, offset).seed(turn as u64 + 1)
}

/// The peers' k, and those around the length of a row.
fn ks(length: i64) -> Vec<i64> {
    let mut ks = vec![1, 10, 100, 500, 2048, length - 1, length];
    ks.retain(|k| (1..=length).contains(k));
    ks.dedup();
    ks
}

#[test]
fn the_greatest_elements_and_their_indices() {
    let mut turn = 0;
    for dtype in TYPES {
        for (rows, cols) in shapes() {
            for k in ks(cols) {
                turn += 1;
                let sorted = turn % 2 == 0 && k <= 4096;
                let case = case("top_k", dtype, &[("rows", rows), ("cols", cols), ("k", k)], turn);
                case.scalar("tie_break", (turn / 2 % 3) as f64).scalar("sorted", f64::from(u8::from(sorted))).check();
            }
        }
    }
}

/// flashinfer #2604: more candidates than a list holds. One element in four rows of each kind differs from the rest.
#[test]
fn more_equal_elements_than_a_list_of_candidates_holds() {
    for dtype in TYPES {
        for (turn, k) in [1, 1023, 1024, 1025, 4000].into_iter().enumerate() {
            let dims = [("rows", 8), ("cols", 9001), ("k", k)];
            case("top_k", dtype, &dims, turn).scalar("tie_break", (turn % 3) as f64).check();
        }
    }
}

#[test]
fn more_than_a_row_has_is_filled_up() {
    for (turn, dtype) in TYPES.into_iter().enumerate() {
        for sorted in [0.0, 1.0] {
            case("top_k", dtype, &[("rows", 9), ("cols", 100), ("k", 130)], turn).scalar("sorted", sorted).check();
        }
    }
}

#[test]
fn sorting_has_a_limit_that_is_named() {
    let library = library();
    let op = library.op("top_k").unwrap();
    let axes = BTreeMap::from([("dtype".to_owned(), "f32".to_owned())]);
    let mut trial = Trial::example(library.definition(op), axes);
    trial.dims = [("rows", 1), ("cols", 5000), ("k", 4097)].map(|(name, n)| (name.to_owned(), n)).into();
    trial.scalars.insert("sorted".to_owned(), 1.0);
    let text = trial.run(library, op, Place::Host).unwrap_err().report().to_string();
    assert!(text.contains("at most 4096 with `sorted`") && text.contains("4097"), "{text}");
}

#[test]
fn entries_of_page_tables() {
    let mut turn = 0;
    for dtype in TYPES {
        for (rows, max_len) in shapes() {
            for k in [1, 64, 2048] {
                turn += 1;
                let dims = [("rows", rows), ("batch", rows), ("max_len", max_len), ("k", k)];
                let case =
                    case("top_k_page_table_transform", dtype, &dims, turn).scalar("tie_break", (turn % 3) as f64);
                if turn % 2 == 0 { case.with("row_to_batch") } else { case }.check();
            }
        }
    }
}

#[test]
fn places_in_ragged_arrays() {
    let mut turn = 0;
    for dtype in TYPES {
        for (rows, max_len) in shapes() {
            for k in [1, 64, 2048] {
                turn += 1;
                let dims = [("rows", rows), ("max_len", max_len), ("k", k)];
                case("top_k_ragged_transform", dtype, &dims, turn).scalar("tie_break", (turn % 3) as f64).check();
            }
        }
    }
}

/// flashinfer #1049: rows of -inf, partly and altogether.
#[test]
fn masks_of_logits() {
    rows_of("top_k_mask_logits", "top_k", "top_ks", |vocab| ks(vocab).into_iter().map(|k| k as f64).collect());
}

#[test]
fn probabilities_renormalised_by_top_k() {
    rows_of("top_k_renorm_probs", "top_k", "top_ks", |vocab| ks(vocab).into_iter().map(|k| k as f64).collect());
}

/// flashinfer #2202: the element at which the sum is reached is kept.
#[test]
fn probabilities_renormalised_by_top_p() {
    rows_of("top_p_renorm_probs", "top_p", "top_ps", |_| vec![0.0, 0.1, 0.5, 0.9, 0.99, 1.0]);
}

/// One threshold for all rows, and one for each.
fn rows_of(op: &str, scalar: &str, tensor: &str, values: fn(i64) -> Vec<f64>) {
    let mut turn = 0;
    for dtype in TYPES {
        for (rows, vocab) in shapes() {
            for value in values(vocab) {
                turn += 1;
                let case = case(op, dtype, &[("rows", rows), ("vocab", vocab)], turn).scalar(scalar, value);
                if turn % 3 == 0 { case.with(tensor) } else { case }.check();
            }
        }
    }
}

#[test]
fn no_rows_are_no_work() {
    case("top_k", "f32", &[("rows", 0), ("cols", 100), ("k", 5)], 0).check();
    case("top_p_renorm_probs", "f32", &[("rows", 0), ("vocab", 100)], 0).check();
}

/// Clusters of each size, and rows that shared memory does not hold.
#[test]
fn long_rows_on_a_gpu() {
    for (turn, (rows, n)) in [(1, 65_536), (2, 262_144), (5, 131_072), (1, 1_000_003)].into_iter().enumerate() {
        let dtype = TYPES[turn % 3];
        for (k, sorted) in [(1, 0.0), (50, 1.0), (2048, 0.0)] {
            let dims = [("rows", rows), ("cols", n), ("k", k)];
            case("top_k", dtype, &dims, turn).scalar("sorted", sorted).large().check();
        }
        let dims = [("rows", rows), ("vocab", n)];
        case("top_k_mask_logits", dtype, &dims, turn).scalar("top_k", 1000.0).large().check();
        case("top_k_renorm_probs", dtype, &dims, turn).scalar("top_k", 1000.0).large().check();
        case("top_p_renorm_probs", dtype, &dims, turn).scalar("top_p", 0.9).large().check();
    }
}
