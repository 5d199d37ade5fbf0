//! Rotary embeddings against their references.

use crate::harness::{Case, gpu, pairs};

const DTYPES: [&str; 3] = ["f16", "bf16", "f32"];
const INDEX: [&str; 2] = ["i32", "i64"];

/// Tokens, heads of q and k, head size, rotary size: vectors and single elements, all columns and some.
const SHAPES: &[(i64, i64, i64, i64, i64)] = &[
    (0, 2, 1, 64, 64),
    (1, 1, 1, 2, 2),
    (5, 4, 1, 64, 64),
    (7, 3, 2, 128, 64),
    (3, 5, 4, 80, 32),
    (4, 2, 0, 48, 48),
    (9, 6, 2, 10, 6),
    (2, 8, 8, 512, 512),
];
const LARGE: &[(i64, i64, i64, i64, i64)] =
    &[(19, 32, 8, 128, 128), (99, 32, 32, 64, 64), (989, 8, 1, 256, 64), (4096, 32, 8, 128, 128)];

fn shapes() -> impl Iterator<Item = (i64, i64, i64, i64, i64)> {
    SHAPES.iter().chain(if gpu() { LARGE } else { &[] }).copied()
}

fn heads(op: &str, (tokens, q, k, head_dim, _): (i64, i64, i64, i64, i64)) -> Case {
    Case::new(op).dims(&[("tokens", tokens), ("q_heads", q), ("kv_heads", k), ("head_dim", head_dim)])
}

#[test]
fn apply_rope_is_right() {
    for (i, shape) in shapes().enumerate() {
        for (j, (dtype, index)) in pairs(&DTYPES, &INDEX).enumerate() {
            let case = heads("apply_rope", shape).axis("dtype", dtype).axis("index", index).seed((i * 8 + j) as u64);
            let case = case.scalar("rotary_dim", shape.4 as f64).scalar("interleave", ((i + j) % 2) as f64);
            let case = if j % 2 == 0 {
                case.with("pos_ids")
            } else {
                case.with("indptr").with("offsets").dims(&[("batch", i as i64)])
            };
            // Llama 3.1, linear scaling, none.
            let case = match (i + j) % 3 {
                0 => case.scalar("rope_theta", 5e5).scalar("rope_scale", 8.0).scalar("old_context_len", 8192.0),
                1 => case.scalar("rope_scale", 3.0),
                _ => case,
            };
            case.check();
        }
    }
}

#[test]
fn apply_rope_takes_heads_of_any_stride() {
    for (pad, offset) in [(8, 0), (3, 1), (16, 8)] {
        for dtype in DTYPES {
            let case = heads("apply_rope", (5, 4, 2, 64, 64)).axis("dtype", dtype).axis("index", "i32");
            case.with("pos_ids").strided(pad, offset).check();
        }
    }
}

/// Named bug: frequencies by head_dim instead of rotary_dim (pie#603, ColossalAI#6444).
#[test]
fn frequencies_follow_the_rotary_size() {
    let case = heads("apply_rope", (64, 2, 1, 256, 64)).axis("dtype", "f32").axis("index", "i64");
    case.scalar("rotary_dim", 64.0).with("pos_ids").seed(90).check();
}

#[test]
fn rope_cos_sin_cache_is_right() {
    for (i, shape) in shapes().enumerate() {
        for (j, (dtype, index)) in pairs(&DTYPES, &INDEX).enumerate() {
            let case = heads("rope_cos_sin_cache", shape).axis("dtype", dtype).axis("index", index);
            let case = case.dims(&[("rotary_dim", shape.4), ("max_position", 33)]).seed((i * 8 + j) as u64);
            case.scalar("interleave", ((i + j) % 2) as f64).strided([0, 0, 4, 5][j % 4], j % 2).check();
        }
    }
}

const QUANTS: [&str; 2] = ["e4m3", "e5m2"];

/// Tokens, heads of queries, of keys, rotary size, other columns of queries, of keys, columns of values.
const PARTS: &[[i64; 7]] = &[
    [0, 2, 1, 64, 0, 0, 64],
    [5, 4, 2, 64, 64, 64, 128],
    [3, 3, 1, 64, 512, 512, 0],
    [4, 5, 3, 6, 3, 5, 7],
    [7, 2, 2, 128, 0, 0, 128],
];

fn parts(op: &str, i: usize, [tokens, q, k, rotary, q_nope, k_nope, v]: [i64; 7], case: [&str; 3]) -> Case {
    let [dtype, quant, index] = case;
    let dims = [
        ("tokens", tokens),
        ("q_heads", q),
        ("kv_heads", k),
        ("rotary_dim", rotary),
        ("q_nope_dim", q_nope),
        ("k_nope_dim", k_nope),
        ("max_position", 50),
    ];
    let case = Case::new(op).axis("dtype", dtype).axis("quant", quant).axis("index", index).dims(&dims);
    let case = if op == "rope_quantize" { case } else { case.dims(&[("v_dim", v)]) };
    case.seed(i as u64)
        .scalar("interleave", (i % 2) as f64)
        .scalar("quant_scale_q", 0.5)
        .scalar("quant_scale_kv", 300.0)
}

#[test]
fn rope_quantize_is_right() {
    for (i, shape) in PARTS.iter().enumerate() {
        for (j, (dtype, quant)) in pairs(&DTYPES[..2], &QUANTS).enumerate() {
            let case = parts("rope_quantize", i + j, *shape, [dtype, quant, INDEX[j % 2]]);
            let case =
                if i == 4 { case } else { case.with("q_nope").with("q_nope_out").with("k_nope").with("k_nope_out") };
            case.strided([0, 8, 3][j % 3], 0).check();
        }
    }
}

#[test]
fn rope_quantize_append_is_right() {
    for (i, shape) in PARTS.iter().enumerate() {
        for (j, (dtype, quant)) in pairs(&DTYPES[..2], &QUANTS).enumerate() {
            let case = parts("rope_quantize_append", i + j, *shape, [dtype, quant, INDEX[j % 2]]);
            let case = case.dims(&[("pages", 9), ("page_size", [1, 4, 16][i % 3]), ("kv_pages", 8), ("batch", 3)]);
            let case = case.with("v").with("v_cache");
            let case =
                if i == 4 { case } else { case.with("q_nope").with("q_nope_out").with("k_nope").with("k_nope_cache") };
            case.strided([0, 8, 3][j % 3], 0).check();
        }
    }
}
