//! Attention against its float64 reference.

use crate::harness::Case;

/// Head sizes of keys and of values.
const DIMS: [(i64, i64); 4] = [(64, 64), (128, 128), (192, 128), (256, 256)];

/// The other scalars and tensors, in turn: some of them with modified scores.
fn varied(case: Case, turn: usize) -> Case {
    match turn % 6 {
        0 => case.with("sinks"),
        1 => case.scalar("window_left", 9.0),
        2 => case.scalar("score", 1.0).scalar("logits_soft_cap", 1.5).scalar("sm_scale", 0.3),
        3 => case.scalar("score", 1.0).with("mask").with("mask_indptr").scalar("causal", 0.0),
        4 => case.scalar("score", 1.0).with("alibi_slopes").scalar("v_scale", 0.25),
        _ => case,
    }
}

/// Words that suffice for the plan and the pieces of these few multiprocessors.
fn attention(tokens: i64, batch: i64, heads: (i64, i64), dims: (i64, i64)) -> Case {
    Case::new("batch_attention").scalar("processors", 3.0).dims(&[
        ("tokens", tokens),
        ("batch", batch),
        ("qo_heads", heads.0),
        ("kv_heads", heads.1),
        ("qk_dim", dims.0),
        ("vo_dim", dims.1),
        ("plan_words", 4096),
        ("partial_words", 3 * 3 * 2 * 128 * 257),
    ])
}

#[test]
fn plans_are_right() {
    for (seed, (batch, tokens)) in
        [(1i64, 1i64), (4, 24), (3, 1000), (70, 70), (2100, 3000), (0, 0), (9, 0)].into_iter().enumerate()
    {
        for (split, rows, window) in [(0.0, 0.0, -1.0), (3.0, 16.0, -1.0), (1.0, 64.0, 100.0)] {
            let group = [1.0, 4.0, 7.0][seed % 3];
            let scalars = [
                ("tokens", tokens as f64),
                ("qo_heads", 2.0 * group),
                ("kv_heads", 2.0),
                ("qk_dim", 128.0),
                ("page_size", 16.0),
                ("causal", f64::from(seed as u32 % 2)),
                ("window_left", window),
                ("rows", rows),
                ("split_tiles", split),
                ("processors", [3.0, 132.0][seed % 2]),
            ];
            let case = Case::new("attention_plan").dims(&[("batch", batch), ("plan_words", 65536)]).seed(seed as u64);
            let case = if tokens % batch.max(1) == 0 && seed % 2 == 0 { case } else { case.with("qo_indptr") };
            let case = if seed % 3 == 0 { case } else { case.with("kv_last_page_len") };
            scalars.into_iter().fold(case, |case, (name, value)| case.scalar(name, value)).check();
        }
    }
}

#[test]
fn batch_attention_is_right() {
    let mut turn = 0;
    for (seed, dims) in DIMS.into_iter().enumerate() {
        for (i, (dtype, kv)) in
            [("f16", "f16"), ("bf16", "bf16"), ("bf16", "e4m3"), ("f16", "e5m2")].into_iter().enumerate()
        {
            // Decoding, a few queries each, and many.
            for (tokens, batch, rows) in [(3i64, 3i64, 16.0), (24, 4, 64.0), (41, 2, 128.0)] {
                let rows = if dims.0 > 192 && rows > 64.0 { 64.0 } else { rows };
                let page = [1i64, 5, 16, 64][(seed + i + tokens as usize) % 4];
                let kv_pages = 130 / page + batch;
                let case = attention(tokens, batch, [(4, 2), (6, 1), (3, 3)][(seed + i) % 3], dims)
                    .axis("dtype", dtype)
                    .axis("kv", kv)
                    .dims(&[("page_size", page), ("kv_pages", kv_pages), ("pages", kv_pages + 3), ("mask_bytes", 4096)])
                    .scalar("rows", rows)
                    .scalar("causal", f64::from(tokens as i32 % 2))
                    .with("lse")
                    .seed(turn as u64 + 1);
                let case = if rows == 16.0 { case } else { case.with("qo_indptr") };
                let case = if seed == 3 { case } else { case.with("kv_indices").with("kv_last_page_len") };
                varied(case, turn).check();
                turn += 1;
            }
        }
    }
}

#[test]
fn queries_and_keys_turn_by_their_positions() {
    for (i, (rows, dims)) in
        [(16.0, (128, 128)), (64.0, (256, 256)), (128.0, (64, 64)), (128.0, (192, 128))].into_iter().enumerate()
    {
        attention(9, 3, (4, 2), dims)
            .axis("dtype", ["f16", "bf16"][i % 2])
            .axis("kv", ["f16", "bf16"][i % 2])
            .dims(&[("page_size", 16), ("kv_pages", 12), ("pages", 12)])
            .scalar("rows", rows)
            .scalar("score", 1.0)
            .scalar("rope_theta", 10000.0)
            // Turned rows are rounded to 16 bits again, which scores of this size do not show.
            .scalar("sm_scale", 0.02)
            .scalar("rope_scale", 2.0)
            .with("lse")
            .seed(i as u64 + 1)
            .check();
    }
}
