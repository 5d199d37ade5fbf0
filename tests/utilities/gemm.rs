//! Products of matrices against their float64 references.

use crate::harness::Case;

/// A product of one matrix of each side, or of several.
fn bmm(batch: i64, m: i64, n: i64, k: i64) -> Case {
    Case::new("bmm").dims(&[("batch", batch), ("m", m), ("n", n), ("k", k)])
}

fn types(case: Case, a: &str, b: &str, out: &str) -> Case {
    case.axis("dtype", a).axis("b_dtype", b).axis("out_dtype", out)
}

#[test]
fn products_are_right() {
    for (seed, (m, n, k)) in
        [(1, 64, 64), (17, 130, 72), (64, 128, 200), (130, 260, 96), (3, 5, 7)].into_iter().enumerate()
    {
        types(bmm(1, m, n, k), "bf16", "bf16", "bf16").seed(seed as u64 + 1).check();
    }
}

/// Rows in groups, each with a matrix of its own.
fn group_mm(m: i64, n: i64, k: i64, groups: i64) -> Case {
    Case::new("group_mm").dims(&[
        ("m", m),
        ("n", n),
        ("k", k),
        ("tokens", m),
        ("groups", groups),
        ("matrices", groups),
        ("b_scale_matrices", groups),
    ])
}

#[test]
fn rows_are_multiplied_with_the_matrix_of_their_group() {
    for (seed, (m, n, k, groups)) in [(60, 72, 64, 5), (300, 136, 72, 2), (7, 5, 9, 40)].into_iter().enumerate() {
        let case = group_mm(m, n, k, groups)
            .with("indptr")
            .axis("dtype", "bf16")
            .axis("out_dtype", "bf16")
            .seed(seed as u64 + 1);
        case.check();
    }
}
