//! Reference of batch_attention in float64.

use super::attention::{self, Batch, Layout, Sharing, Tile};
use crate::binding::{Draw, Expected, Problem};
use std::f64::consts::LN_2;

fn scale(problem: &Problem) -> f64 {
    match problem.scalars["sm_scale"] {
        0.0 => 1.0 / (problem.dims["qk_dim"] as f64).sqrt(),
        some => some,
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let dim = |name: &str| problem.dims[name] as usize;
    let integers = |name: &str| problem.inputs.get(name).map(|v| v.iter().map(|x| *x as i64).collect::<Vec<_>>());
    let (tokens, qo_heads, kv_heads) = (dim("tokens"), dim("qo_heads"), dim("kv_heads"));
    let (qk_dim, vo_dim, page_size) = (dim("qk_dim"), dim("vo_dim"), dim("page_size"));
    let batch = Batch::new(integers, dim("batch") as i64, tokens as i64, page_size as i64);
    let kv_indptr = integers("kv_indptr").expect("bug: kv_indptr is given");
    let kv_indices = integers("kv_indices");
    let (causal, window) = (problem.scalars["causal"] != 0.0, problem.scalars["window_left"] as i64);
    let (q, k, v) = (&problem.inputs["q"], &problem.inputs["k"], &problem.inputs["v"]);
    let (sinks, mask) = (problem.inputs.get("sinks"), problem.inputs.get("mask"));
    let slopes = problem.inputs.get("alibi_slopes");
    let mask_indptr = integers("mask_indptr").unwrap_or_default();
    let (cap, theta) = (problem.scalars["logits_soft_cap"], problem.scalars["rope_theta"]);
    let (mut o, mut lse) = (vec![0.0; tokens * qo_heads * vo_dim], vec![f64::NEG_INFINITY; tokens * qo_heads]);
    let mut first_token = 0;
    for (request, (qo_len, kv_len)) in batch.qo.iter().zip(&batch.kv).enumerate() {
        let row_of = |key: i64| {
            let page = kv_indptr[request] + key / page_size as i64;
            let page = kv_indices.as_ref().map_or(page, |indices| indices[page as usize]);
            page as usize * page_size + (key % page_size as i64) as usize
        };
        for (i, head) in (0..*qo_len).flat_map(|i| (0..qo_heads).map(move |head| (i, head))) {
            let at = (first_token + i as usize) * qo_heads + head;
            let of_keys = head / (qo_heads / kv_heads);
            let own = i + kv_len - qo_len;
            let turned = |row: &[f64], position: i64| match theta {
                0.0 => row.to_vec(),
                _ => turn(row, position, theta, problem.scalars["rope_scale"]),
            };
            let query = turned(&q[at * qk_dim..][..qk_dim], own);
            let masked = |key: i64| {
                let bit = i * kv_len + key;
                let byte = |m: &Vec<f64>| m[(mask_indptr[request] + bit / 8) as usize] as u64;
                mask.is_some_and(|m| byte(m) >> (bit % 8) & 1 == 0)
            };
            let (from, to) = attention::seen(i, *qo_len, *kv_len, causal, window);
            let score = |key: i64| {
                if masked(key) {
                    return f64::NEG_INFINITY;
                }
                let row = turned(&k[(row_of(key) * kv_heads + of_keys) * qk_dim..][..qk_dim], key);
                let product = query.iter().zip(&row).map(|(a, b)| a * b).sum::<f64>() * scale(problem);
                let capped = if cap == 0.0 { product } else { cap * (product / cap).tanh() };
                capped + slopes.map_or(0.0, |s| s[head]) * (key - own) as f64
            };
            let scores: Vec<f64> = (from..to.max(from)).map(score).collect();
            let sink = sinks.map_or(f64::NEG_INFINITY, |s| s[head]);
            let max = scores.iter().copied().fold(sink, f64::max);
            if max == f64::NEG_INFINITY {
                continue;
            }
            let sum = scores.iter().map(|s| (s - max).exp()).sum::<f64>() + (sink - max).exp();
            lse[at] = (max + sum.ln()) / LN_2;
            for (key, s) in (from..).zip(&scores) {
                let weight = (s - max).exp() / sum * problem.scalars["v_scale"];
                let value = &v[(row_of(key) * kv_heads + of_keys) * vo_dim..][..vo_dim];
                o[at * vo_dim..][..vo_dim].iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
            }
        }
        first_token += *qo_len as usize;
    }
    let plan = problem.inputs["plan"].clone();
    vec![Expected::close("o", o), Expected::close("lse", lse), Expected::exact("plan", plan), Expected::free("partial")]
}

/// A batch, and the plan that attention_plan would make for it.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let dim = |name: &str| draw.dims[name];
    let (tokens, page_size, batch) = (dim("tokens"), dim("page_size"), dim("batch"));
    let group = dim("qo_heads") / dim("kv_heads");
    let tile = Tile::of(draw.scalars["rows"] as i64, tokens, batch, group, dim("qk_dim"));
    let layout = Layout::new(dim("plan_words"), draw.scalars["processors"] as i64 * tile.blocks, dim("kv_heads"));
    let how = Sharing {
        tile,
        group,
        kv_heads: dim("kv_heads"),
        causal: draw.scalars["causal"] != 0.0,
        window: draw.scalars["window_left"] as i64,
        split: 0,
    };
    let (kv_pages, pages) = (dim("kv_pages"), dim("pages"));
    attention::draw_batch(draw, tokens, kv_pages, pages, page_size);
    let integers = |name: &str| draw.tensors.get(name).map(|v| v.iter().map(|x| *x as i64).collect::<Vec<_>>());
    let lengths = Batch::new(integers, batch, tokens, page_size);
    let bytes = |(qo, kv): (&i64, &i64)| (qo * kv + 7) / 8;
    let mask: Vec<i64> = lengths.qo.iter().zip(&lengths.kv).map(bytes).collect();
    if let Some(indptr) = draw.tensors.get_mut("mask_indptr") {
        // What does not fit is cut: the requests behind have masks that overlap.
        let mut at = 0;
        let most = draw.dims["mask_bytes"] - mask.iter().max().copied().unwrap_or(0);
        for (first, bytes) in indptr.iter_mut().zip(mask.iter().chain([&0])) {
            *first = at.min(most) as f64;
            at += bytes;
        }
    }
    let random = &mut *draw.random;
    draw.tensors.entry("mask".to_owned()).and_modify(|m| m.iter_mut().for_each(|b| *b = random.below(256) as f64));
    let mut plan = vec![0; draw.dims["plan_words"] as usize];
    attention::write_plan(&mut plan, &lengths, how, layout);
    draw.tensors.insert("plan".to_owned(), plan.iter().map(|w| *w as f64).collect());
}

/// Pairs (i, i + half) turned by `position · theta^(-2i/size) / scale`.
fn turn(row: &[f64], position: i64, theta: f64, scale: f64) -> Vec<f64> {
    let half = row.len() / 2;
    let mut turned = row.to_vec();
    for i in 0..half {
        let frequency = (theta.powf(-2.0 * i as f64 / row.len() as f64) / scale) as f32;
        let (sine, cosine) = f64::from(position as f32 * frequency).sin_cos();
        turned[i] = row[i] * cosine - row[i + half] * sine;
        turned[i + half] = row[i + half] * cosine + row[i] * sine;
    }
    turned
}
