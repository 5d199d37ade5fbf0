//! Mixtures of experts against their float64 references.

use crate::harness::{Case, pairs};

const TYPES: [&str; 3] = ["f32", "bf16", "f16"];

fn route(dtype: &str, tokens: i64, experts: i64, k: i64, turn: usize) -> Case {
    let (pad, offset) = [(0, 0), (1, 3)][turn % 2];
    Case::new("moe_route")
        .axis("dtype", dtype)
        .dims(&[("tokens", tokens), ("experts", experts), ("k", k)])
        .strided(pad, offset)
        .seed(turn as u64 + 1)
}

#[test]
fn routes_are_right() {
    // Experts on both sides of what lanes hold, and of what a bitmap has room for.
    let shapes =
        [(1, 1, 1), (7, 8, 2), (14, 60, 4), (9, 128, 8), (8, 129, 9), (8, 257, 32), (7, 512, 10), (7, 1025, 8)];
    for (turn, ((tokens, experts, k), scoring)) in pairs(&shapes, &[0.0, 1.0, 2.0]).enumerate() {
        let case = route(TYPES[turn % 3], tokens, experts, k, turn).scalar("scoring", scoring);
        let case = case.scalar("renormalize", f64::from(turn as u32 / 2 % 2)).scalar("scale", [1.0, 2.5][turn % 2]);
        if turn % 4 == 1 { case.with("bias") } else { case }.check();
    }
}

#[test]
fn routes_within_groups_are_right() {
    let shapes = [
        (14, 256, 8, 8, 4),
        (9, 256, 8, 4, 1),
        (9, 160, 6, 8, 3),
        (8, 72, 8, 1, 1),
        (7, 96, 3, 32, 3),
        (3, 1024, 8, 16, 2),
    ];
    for (turn, ((tokens, experts, k, groups, kept), best)) in pairs(&shapes, &[1.0, 2.0]).enumerate() {
        let case = route(TYPES[turn / 2 % 3], tokens, experts, k, turn)
            .scalar("scoring", [1.0, 0.0][turn / 4 % 2])
            .scalar("groups", f64::from(groups))
            .scalar("kept_groups", f64::from(kept))
            .scalar("group_best", best)
            .scalar("scale", 2.5);
        if turn % 3 == 0 { case } else { case.with("bias") }.check();
    }
}

/// What so many choices need at most.
fn room(choices: i64, experts: i64, tile: i64) -> (i64, i64) {
    let places = (choices + choices.min(experts) * (tile - 1)) / tile * tile;
    (places, places / tile)
}

fn align(tokens: i64, k: i64, experts: i64, tile: i64, first: i64) -> Case {
    let (capacity, tiles) = room(tokens * k, experts, tile);
    Case::new("moe_align")
        .dims(&[("tokens", tokens), ("k", k), ("experts", experts), ("capacity", capacity), ("tiles", tiles)])
        .scalar("tile", tile as f64)
        .scalar("first", first as f64)
}

#[test]
fn choices_are_sorted() {
    let shapes = [(0, 2, 8), (1, 1, 1), (1, 8, 128), (3, 2, 1), (37, 6, 7), (300, 3, 5)];
    for (turn, ((tokens, k, experts), tile)) in pairs(&shapes, &[1, 16, 64, 128]).enumerate() {
        let case = align(tokens, k, experts, tile, [0, 3, 128][turn % 3]).seed(turn as u64);
        // More room than is needed is filled up too.
        let (capacity, tiles) = room(tokens * k, experts, tile);
        let case = if turn % 2 == 0 { case.dims(&[("capacity", capacity + 70), ("tiles", tiles + 5)]) } else { case };
        if turn % 5 == 0 { case } else { case.with("tile_experts") }.check();
    }
}

/// More experts than a block has threads and than there are blocks; more choices than 16 bits count.
#[test]
fn many_choices_and_many_experts_are_sorted() {
    align(9, 8, 1025, 16, 0).with("tile_experts").check();
    align(8200, 8, 3, 64, 1).with("tile_experts").check();
}

#[test]
fn what_experts_made_is_added_up() {
    let shapes = [(1, 1, 8), (5, 2, 111), (7, 8, 500), (3, 3, 4096), (300, 6, 1), (2, 33, 24)];
    for (turn, ((tokens, k, hidden), dtype)) in pairs(&shapes, &TYPES).enumerate() {
        let (pad, offset) = [(0, 0), (8, 0), (1, 3)][turn % 3];
        Case::new("moe_finalize")
            .axis("dtype", dtype)
            .dims(&[("tokens", tokens), ("k", k), ("hidden", hidden), ("capacity", tokens * k * (turn as i64 % 2) + 3)])
            .strided(pad, offset)
            .seed(turn as u64 + 1)
            .check();
    }
    Case::new("moe_finalize")
        .axis("dtype", "bf16")
        .dims(&[("tokens", 0), ("k", 2), ("hidden", 8), ("capacity", 0)])
        .check();
    Case::new("moe_finalize")
        .axis("dtype", "bf16")
        .dims(&[("tokens", 4), ("k", 2), ("hidden", 8), ("capacity", 0)])
        .check();
}

#[test]
fn gates_and_ups_are_right() {
    // Rows of out, tokens, experts, elements of a row of x and of out: tiles that are begun, prime sizes, and no rows.
    let shapes = [
        (1, 1, 1, 8, 1),
        (37, 11, 3, 136, 33),
        (5, 3, 4, 64, 70),
        (150, 40, 2, 72, 131),
        (0, 4, 2, 16, 8),
        (9, 0, 2, 16, 8),
    ];
    // The model of costs takes other tiles as rows and processors differ.
    for (turn, ((m, tokens, experts, hidden, inner), processors)) in pairs(&shapes, &[1.0, 132.0]).enumerate() {
        let case = Case::new("moe_gate_up")
            .axis("dtype", TYPES[1 + turn % 2])
            .dims(&[("m", m), ("tokens", tokens), ("experts", experts), ("hidden", hidden), ("inner", inner)])
            .scalar("activation", f64::from(turn as u32 % 4))
            .scalar("limit", 3.0)
            .scalar("processors", processors)
            .strided([0, 8][turn / 2 % 2], 0)
            .seed(turn as u64 + 1);
        if turn % 3 == 0 { case.with("bias") } else { case }.check();
    }
}

#[test]
fn gates_and_ups_of_8_bits_are_right() {
    let shapes = [(1, 1, 1, 16, 128), (37, 11, 3, 144, 256), (150, 40, 2, 272, 128), (0, 4, 2, 16, 128)];
    for (turn, ((m, tokens, experts, hidden, inner), processors)) in pairs(&shapes, &[1.0, 132.0]).enumerate() {
        Case::new("moe_gate_up_quant")
            .dims(&[("m", m), ("tokens", tokens), ("experts", experts), ("hidden", hidden), ("inner", inner)])
            .scalar("activation", f64::from(turn as u32 / 2 % 4))
            .scalar("processors", processors)
            .strided([0, 16][turn / 2 % 2], 0)
            .seed(turn as u64 + 1)
            .check();
    }
}
