//! Reference of attention_plan: the same words.

use super::attention::{self, Batch, Layout, Sharing, Tile};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let scalar = |name: &str| problem.scalars[name] as i64;
    let integers = |name: &str| problem.inputs.get(name).map(|v| v.iter().map(|x| *x as i64).collect::<Vec<_>>());
    let (batch, tokens) = (problem.dims["batch"], scalar("tokens"));
    let group = scalar("qo_heads") / scalar("kv_heads");
    let tile = Tile::of(scalar("rows"), tokens, batch, group, scalar("qk_dim"));
    let mut plan = integers("plan").expect("bug: the plan is given");
    let layout = Layout::new(plan.len() as i64, scalar("processors") * tile.blocks, scalar("kv_heads"));
    let how = Sharing {
        tile,
        group,
        kv_heads: scalar("kv_heads"),
        causal: scalar("causal") != 0,
        window: scalar("window_left"),
        split: scalar("split_tiles"),
    };
    attention::write_plan(&mut plan, &Batch::new(integers, batch, tokens, scalar("page_size")), how, layout);
    vec![Expected::exact("plan", plan.iter().map(|w| *w as f64).collect())]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    let (tokens, page_size) = (draw.scalars["tokens"] as i64, draw.scalars["page_size"] as i64);
    let pages = draw.dims["batch"] * 40;
    attention::draw_batch(draw, tokens, pages, pages, page_size);
    // Left over from something else.
    let random = &mut *draw.random;
    draw.tensors
        .entry("plan".to_owned())
        .and_modify(|plan| plan.iter_mut().for_each(|w| *w = random.below(1 << 20) as f64));
}
