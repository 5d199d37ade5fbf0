//! Products of matrices against their float64 references.

use crate::harness::{Case, pairs};

/// A product of one matrix of each side, or of several.
fn bmm(batch: i64, m: i64, n: i64, k: i64) -> Case {
    Case::new("bmm").dims(&[("batch", batch), ("m", m), ("n", n), ("k", k)])
}

fn types(case: Case, a: &str, b: &str, out: &str) -> Case {
    case.axis("dtype", a).axis("b_dtype", b).axis("out_dtype", out)
}

/// Of operands, 8 bits in both orders among them, and of results.
const TYPES: [(&str, &str, &str); 5] = [
    ("bf16", "bf16", "bf16"),
    ("f16", "f16", "f16"),
    ("e4m3", "e4m3", "bf16"),
    ("bf16", "bf16", "f32"),
    ("e5m2", "e4m3", "f16"),
];

/// None, one, odd and prime sizes, and what is a little more than a tile; rows that lie apart, with NaN between them.
#[test]
fn products_are_right() {
    let shapes = [
        (1, 0, 5, 8),
        (2, 5, 0, 8),
        (1, 5, 3, 0),
        (0, 3, 4, 8),
        (1, 1, 1, 1),
        (1, 1, 64, 64),
        (3, 3, 5, 7),
        (1, 17, 131, 80),
        (1, 64, 128, 208),
        (2, 37, 97, 101),
        (1, 130, 260, 96),
    ];
    for (turn, ((batch, m, n, k), (a, b, out))) in pairs(&shapes, &TYPES).enumerate() {
        let (pad, offset) = [(0, 0), (3, 1), (16, 0)][turn % 3];
        let case = types(bmm(batch, m, n, k), a, b, out)
            .strided(pad, offset)
            .scalar("activation", f64::from(turn as u32 % 5))
            .seed(turn as u64 + 1);
        if turn % 2 == 0 { case.with("bias") } else { case }.check();
    }
}

/// Blocks of 128, the last of which may be begun.
fn blocks(n: i64) -> i64 {
    (n + 127) / 128
}

/// Of everything, of rows, of rows and blocks along k, and of blocks on both sides.
#[test]
fn factors_are_those_of_their_rows_and_blocks() {
    let shapes = [(1, 1, 1, 1), (1, 5, 130, 272), (2, 131, 200, 400), (1, 1, 257, 128), (1, 3, 7, 0)];
    for (turn, (batch, m, n, k)) in shapes.into_iter().enumerate() {
        let (mb, nb, kb) = (blocks(m), blocks(n), blocks(k));
        for (a_rows, a_blocks, b_rows, b_blocks) in [(1, 1, 1, 1), (m, 1, n, 1), (m, kb, nb, kb), (mb, kb, nb, kb)] {
            types(bmm(batch, m, n, k), "e4m3", "e4m3", "f32")
                .with("a_scale")
                .with("b_scale")
                .dims(&[("a_scale_rows", a_rows), ("a_scale_blocks", a_blocks)])
                .dims(&[("b_scale_rows", b_rows), ("b_scale_blocks", b_blocks)])
                .dims(&[("a_scale_batch", [1, batch][turn % 2]), ("b_scale_batch", [batch, 1][turn % 2])])
                .seed(turn as u64 + 1)
                .check();
        }
    }
    types(bmm(2, 19, 70, 72), "bf16", "bf16", "bf16")
        .with("a_scale")
        .with("b_scale")
        .dims(&[("a_scale_rows", 19), ("b_scale_rows", 70), ("b_scale_batch", 2)])
        .check();
}

/// Pieces of any content before, tickets that are zeros before and after.
#[test]
fn products_cut_along_k_are_right() {
    for (turn, (batch, m, n, k)) in
        [(1, 1, 64, 4096), (2, 16, 65, 3000), (1, 70, 130, 2056), (1, 3, 5, 1000)].into_iter().enumerate()
    {
        let (a, b, out) = TYPES[turn % 3];
        types(bmm(batch, m, n, k), a, b, out)
            .with("partial")
            .with("tickets")
            .with("bias")
            .dims(&[("partial_words", 1 << 19), ("ticket_words", 64)])
            .scalar("activation", f64::from(turn as u32))
            .seed(turn as u64 + 1)
            .check();
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

/// Which rows are a group's: said in three ways, with rows of `a` in any order and matrices in any order, and without.
#[test]
fn rows_are_multiplied_with_the_matrix_of_their_group() {
    let shapes =
        [(60, 72, 64, 5), (300, 136, 72, 2), (40, 5, 9, 40), (0, 8, 8, 3), (6, 1, 1, 1), (12, 0, 8, 4), (15, 7, 0, 3)];
    for (turn, ((m, n, k, groups), how)) in pairs(&shapes, &["indptr", "lengths", "ids"]).enumerate() {
        let (dtype, _, out) = TYPES[[0, 1, 3][turn / 3 % 3]];
        let (pad, offset) = [(0, 0), (3, 1)][turn % 2];
        let case = group_mm(m, n, k, groups).with(how).axis("dtype", dtype).axis("out_dtype", out).strided(pad, offset);
        let case = if turn % 2 == 0 { case.with("bias") } else { case };
        let case = if turn % 3 == 0 { case } else { case.with("rows").dims(&[("tokens", m + 3)]) };
        let case =
            if turn % 4 == 1 { case.with("weights").dims(&[("matrices", 3), ("b_scale_matrices", 3)]) } else { case };
        case.scalar("activation", f64::from(turn as u32 % 5)).seed(turn as u64 + 1).check();
    }
}

#[test]
fn factors_of_groups_are_those_of_their_rows_and_blocks() {
    for (turn, ((m, n, k, groups), how)) in
        pairs(&[(40, 130, 272, 4), (260, 33, 128, 2)], &["indptr", "lengths", "ids"]).enumerate()
    {
        group_mm(m, n, k, groups)
            .with(how)
            .axis("dtype", "e4m3")
            .axis("out_dtype", ["f32", "bf16"][turn % 2])
            .with("a_scale")
            .with("b_scale")
            .dims(&[("a_scale_rows", [m, blocks(m)][turn % 2]), ("a_scale_blocks", blocks(k))])
            .dims(&[("b_scale_rows", blocks(n)), ("b_scale_blocks", blocks(k))])
            .seed(turn as u64 + 1)
            .check();
    }
}
