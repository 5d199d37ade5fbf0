//! Reference of mla_attention in float64.

use super::attention::{self, Batch, LATENT, Layout, Sharing, Tile};
use super::mla_attention_launch::{NOPE, scale};
use crate::binding::{Draw, Expected, Problem};
use std::f64::consts::LN_2;

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let dim = |name: &str| problem.dims[name] as usize;
    let integers = |name: &str| problem.inputs.get(name).map(|v| v.iter().map(|x| *x as i64).collect::<Vec<_>>());
    let (tokens, heads, page_size) = (dim("tokens"), dim("heads"), dim("page_size"));
    let (nope, pe) = (NOPE as usize, (LATENT - NOPE) as usize);
    let batch = Batch::new(integers, dim("batch") as i64, tokens as i64, page_size as i64);
    let kv_indptr = integers("kv_indptr").expect("bug: kv_indptr is given");
    let kv_indices = integers("kv_indices");
    let (causal, scale) = (problem.scalars["causal"] != 0.0, scale(problem.scalars["sm_scale"]));
    let [q_nope, q_pe, ckv, kpe] = ["q_nope", "q_pe", "ckv", "kpe"].map(|name| &problem.inputs[name]);
    let (mut o, mut lse) = (vec![0.0; tokens * heads * nope], vec![f64::NEG_INFINITY; tokens * heads]);
    let mut first_token = 0;
    for (request, (qo_len, kv_len)) in batch.qo.iter().zip(&batch.kv).enumerate() {
        let row_of = |key: i64| {
            let page = kv_indptr[request] + key / page_size as i64;
            let page = kv_indices.as_ref().map_or(page, |indices| indices[page as usize]);
            page as usize * page_size + (key % page_size as i64) as usize
        };
        for (i, head) in (0..*qo_len).flat_map(|i| (0..heads).map(move |head| (i, head))) {
            let at = (first_token + i as usize) * heads + head;
            let (from, to) = attention::seen(i, *qo_len, *kv_len, causal, -1);
            let score = |key: i64| {
                let row = row_of(key);
                let a = q_nope[at * nope..][..nope].iter().zip(&ckv[row * nope..]).map(|(a, b)| a * b).sum::<f64>();
                let b = q_pe[at * pe..][..pe].iter().zip(&kpe[row * pe..]).map(|(a, b)| a * b).sum::<f64>();
                (a + b) * scale
            };
            let scores: Vec<f64> = (from..to.max(from)).map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if max == f64::NEG_INFINITY {
                continue;
            }
            let sum = scores.iter().map(|s| (s - max).exp()).sum::<f64>();
            lse[at] = (max + sum.ln()) / LN_2;
            for (key, s) in (from..).zip(&scores) {
                let weight = (s - max).exp() / sum;
                let value = &ckv[row_of(key) * nope..][..nope];
                o[at * nope..][..nope].iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
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
    let (tokens, page_size, batch, group) = (dim("tokens"), dim("page_size"), dim("batch"), dim("heads"));
    let tile = Tile::of(draw.scalars["rows"] as i64, tokens, batch, group, LATENT);
    let layout = Layout::new(dim("plan_words"), draw.scalars["processors"] as i64 * tile.blocks, 1);
    let causal = draw.scalars["causal"] != 0.0;
    let how = Sharing { tile, group, kv_heads: 1, causal, window: -1, split: 0 };
    let (kv_pages, pages) = (dim("kv_pages"), dim("pages"));
    attention::draw_batch(draw, tokens, kv_pages, pages, page_size);
    let integers = |name: &str| draw.tensors.get(name).map(|v| v.iter().map(|x| *x as i64).collect::<Vec<_>>());
    let lengths = Batch::new(integers, batch, tokens, page_size);
    let mut plan = vec![0; draw.dims["plan_words"] as usize];
    attention::write_plan(&mut plan, &lengths, how, layout);
    draw.tensors.insert("plan".to_owned(), plan.iter().map(|w| *w as f64).collect());
}
