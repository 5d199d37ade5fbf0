//! Launcher of group_mm.

use super::gemm::{self, HOPPER, PORTABLE, Scales, Tile, Work, bytes, div_ceil};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_group_mm_params;

/// How many groups there are: without a tensor that says so, as many as matrices.
pub(crate) fn groups(groups: i64, matrices: i64, said: bool) -> i64 {
    if said { groups } else { matrices }
}

fn group_count(call: &Checked<'_>) -> i64 {
    let said = ["indptr", "lengths", "weights"].iter().any(|name| call.given(name));
    groups(call.dim("groups"), call.dim("matrices"), said)
}

/// Groups of the mean size.
fn work(call: &Checked<'_>) -> Work {
    let m = call.dim("m");
    let groups = group_count(call).clamp(1, m.max(1));
    Work {
        m: div_ceil(m, groups),
        n: call.dim("n"),
        k: call.dim("k"),
        groups,
        bytes: call.tensor("a").dtype.bytes() as i64,
        out_bytes: call.tensor("out").dtype.bytes() as i64,
        processors: call.int("processors"),
        room: 0,
        tickets: 0,
    }
}

/// Tiles of rows, at most.
fn m_tiles(call: &Checked<'_>, rows: i64) -> i64 {
    let (m, groups) = (call.dim("m"), group_count(call));
    if call.given("ids") {
        div_ceil(m, rows)
    } else if call.given("lengths") {
        groups * div_ceil(m / groups.max(1), rows)
    } else {
        // Each group ends with a tile of its own, and none has no row.
        m.min((m + groups * (rows - 1)) / rows)
    }
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let [m, n, k, tokens, matrices] = ["m", "n", "k", "tokens", "matrices"].map(|name| call.dim(name));
    gemm::check_scales(call, "a_scale", 1, tokens, k, wrong);
    gemm::check_scales(call, "b_scale", matrices, n, k, wrong);
    let given: Vec<_> = ["indptr", "lengths", "ids"].into_iter().filter(|name| call.given(name)).collect();
    if given.len() != 1 {
        let got = if given.is_empty() { "none of them".to_owned() } else { given.join(", ") };
        wrong.add("indptr", "presence", "one of indptr, lengths and ids", got);
        return;
    }
    let groups = group_count(call);
    if call.given("lengths") && (groups == 0 || m % groups != 0) && m > 0 {
        wrong.add("out", "shape", format!("a multiple of the {groups} groups that lengths has"), m.to_string());
    }
    if !call.given("rows") && tokens != m {
        wrong.add("a", "shape", format!("{m} rows, as out has them, where rows is absent"), tokens.to_string());
    }
    if !call.given("weights") && matrices < groups {
        wrong.add(
            "b",
            "shape",
            format!("a matrix for each of {groups} groups, where weights is absent"),
            matrices.to_string(),
        );
    }
    let rows = call.int("tile_rows");
    if ![0, 16, 64, 128].contains(&rows) {
        wrong.add("tile_rows", "value", "one of 0, 16, 64, 128", rows.to_string());
    }
    let blocks = m_tiles(call, 16).saturating_mul(div_ceil(n, 64));
    if blocks > i64::from(i32::MAX) {
        wrong.add("out", "shape", "at most 2147483647 tiles of 16 × 64", blocks.to_string());
    }
}

/// The tiles of wgmma for a call: a box has rows that lie side by side, all of one group.
fn hopper_tiles(call: &Checked<'_>, load: u32) -> &'static [u32] {
    if call.given("rows") || call.given("ids") {
        return &[];
    }
    gemm::hopper_tiles(call.tensor("a"), call.tensor("b"), load)
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let load = gemm::load(call.tensor("a"), call.tensor("b"));
    let (work, asked) = (work(call), call.int("tile_rows"));
    let fits = |tile: Tile| asked == 0 || tile.rows == asked;
    if load != gemm::ONE_BY_ONE {
        let (tiles, count) = work.order();
        let fits = |tile: &&u32| fits(Tile::of(**tile, work.bytes));
        tiles[..count].iter().filter(fits).for_each(|tile| choices.push(&[*tile, load, PORTABLE]));
    }
    choices.push(&[64, gemm::ONE_BY_ONE, PORTABLE]);
    // After all others: it is offered to `parbake tune`, and not chosen before it has been measured on a GPU.
    if target == Target::SM_90A {
        let (tiles, count): ([u32; 5], _) = work.order_of(hopper_tiles(call, load), Tile::hopper);
        let fits = |tile: &&u32| fits(Tile::hopper(**tile, work.bytes));
        tiles[..count].iter().filter(fits).for_each(|tile| choices.push(&[*tile, load, HOPPER]));
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let [out, a, b, bias] = ["out", "a", "b", "bias"].map(|name| call.tensor(name));
    let data = |name: &str| call.tensor(name).data;
    let [m, n, k, tokens, matrices] = ["m", "n", "k", "tokens", "matrices"].map(|name| call.dim(name));
    let tactic = [0, 1, 2].map(|i| tactic.0[i]);
    let (tile, [a_map, b_map]) = gemm::tile_and_maps(a, b, tactic);
    let [a_scale, b_scale] =
        [("a_scale", tokens), ("b_scale", n)].map(|(name, rows)| Scales::new(call.tensor(name), rows));
    let (groups, n_tiles) = (group_count(call), div_ceil(n, tile.columns));
    let params = pb_group_mm_params {
        a_map,
        b_map,
        a: a.data,
        b: b.data,
        out: out.data,
        bias: bias.data,
        a_scale: a_scale.data,
        b_scale: b_scale.data,
        indptr: data("indptr"),
        lengths: data("lengths"),
        ids: data("ids"),
        rows: data("rows"),
        weights: data("weights"),
        a_row: bytes(a, 0),
        a_k: bytes(a, 1),
        b_group: bytes(b, 0),
        b_row: bytes(b, 1),
        b_k: bytes(b, 2),
        out_row: bytes(out, 0),
        bias_group: if bias.is_absent() { 0 } else { bias.stride(0) },
        a_scale_row: a_scale.row,
        a_scale_k: a_scale.k,
        b_scale_group: b_scale.batch,
        b_scale_row: b_scale.row,
        b_scale_k: b_scale.k,
        m: m as i32,
        n: n as i32,
        k: k as i32,
        tokens: tokens as i32,
        groups: groups as i32,
        matrices: matrices as i32,
        most: (m / groups.max(1)) as i32,
        n_tiles: n_tiles as i32,
        a_scale_shift: a_scale.shift,
        b_scale_shift: b_scale.shift,
        activation: call.int("activation") as i32,
        wide: gemm::wide(out).into(),
    };
    let blocks = m_tiles(call, tile.rows) * n_tiles;
    if tactic[2] == HOPPER {
        let grid = [blocks.clamp(1, call.int("processors")) as u32, 1, 1];
        return Launch::new(Params::new(params), grid, tile.threads).shared(tile.hopper_shared()).maps(2);
    }
    Launch::new(Params::new(params), [blocks.max(1) as u32, 1, 1], tile.threads).shared(tile.shared())
}
