//! Multi-head latent attention against its float64 reference.

use crate::harness::Case;

/// Words that suffice for the plan and the pieces of these few multiprocessors.
fn mla(tokens: i64, batch: i64, heads: i64, page: i64, kv_pages: i64) -> Case {
    Case::new("mla_attention").scalar("processors", 3.0).dims(&[
        ("tokens", tokens),
        ("batch", batch),
        ("heads", heads),
        ("page_size", page),
        ("kv_pages", kv_pages),
        ("pages", kv_pages + 3),
        ("plan_words", 4096),
        ("partial_words", 3 * 2 * 64 * 513),
    ])
}

/// The plan that it takes has tiles of its own.
#[test]
fn plans_for_latents_are_right() {
    for (seed, (batch, tokens, heads)) in [(4i64, 4i64, 16.0), (3, 30, 128.0), (70, 140, 5.0)].into_iter().enumerate() {
        let scalars = [
            ("tokens", tokens as f64),
            ("qo_heads", heads),
            ("kv_heads", 1.0),
            ("qk_dim", 576.0),
            ("page_size", 64.0),
            ("causal", 1.0),
            ("processors", 3.0),
            ("split_tiles", if seed == 2 { 4.0 } else { 0.0 }),
        ];
        let case = Case::new("attention_plan").dims(&[("batch", batch), ("plan_words", 65536)]).seed(seed as u64);
        scalars.into_iter().fold(case.with("qo_indptr"), |case, (name, value)| case.scalar(name, value)).check();
    }
}

#[test]
fn mla_attention_is_right() {
    for (i, dtype) in ["f16", "bf16"].into_iter().enumerate() {
        // Decoding with few heads and with many, several tokens of a request, heads that divide no tile.
        let cases = [(3i64, 3i64, 16i64, 16.0), (2, 2, 64, 64.0), (5, 3, 24, 64.0), (7, 3, 3, 16.0), (4, 4, 5, 0.0)];
        for (seed, (tokens, batch, heads, rows)) in cases.into_iter().enumerate() {
            let page = [1i64, 5, 16, 64, 256][(seed + 2 * i) % 5];
            let case = mla(tokens, batch, heads, page, 150 / page + batch)
                .axis("dtype", dtype)
                .scalar("rows", rows)
                .scalar("causal", f64::from(u8::from(seed % 2 == i)))
                .seed(seed as u64 + 1)
                .strided([0, 64][seed % 2], 0)
                .with("lse");
            let case = if tokens % batch == 0 && seed != 0 { case } else { case.with("qo_indptr") };
            let case = if seed == 1 { case } else { case.with("kv_indices").with("kv_last_page_len") };
            case.check();
        }
    }
}

#[test]
fn without_requests_there_is_nothing_to_do() {
    mla(0, 0, 16, 16, 0).axis("dtype", "bf16").check();
    mla(3, 3, 16, 16, 0).axis("dtype", "f16").with("qo_indptr").with("lse").check();
}
