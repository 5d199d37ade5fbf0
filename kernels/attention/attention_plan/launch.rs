//! Launcher of attention_plan.

use super::attention::{self, Layout, Tile};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_attention_plan_params;

fn tile(call: &Checked<'_>) -> Tile {
    let group = call.int("qo_heads") / call.int("kv_heads");
    Tile::of(call.int("rows"), call.int("tokens"), call.dim("batch"), group, call.int("qk_dim"))
}

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let kv_heads = call.int("kv_heads");
    attention::check_aligned(call, &["plan"], wrong);
    attention::check_rows(call.int("rows"), call.int("qk_dim"), wrong);
    attention::check_lengths(call, call.int("tokens"), wrong);
    let Some(group) = attention::group(call.int("qo_heads"), kv_heads, wrong) else { return };
    let tile = tile(call);
    let items = attention::most_items(call.int("tokens"), call.dim("batch"), group, tile);
    attention::check_plan(call.dim("plan_words"), call.int("processors") * tile.blocks, items, kv_heads, wrong);
}

pub(crate) fn select(_call: &Checked<'_>, _target: Target, choices: &mut Choices) {
    choices.push(&[1024]);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (tile, kv_heads) = (tile(call), call.int("kv_heads"));
    let layout = Layout::new(call.dim("plan_words"), call.int("processors") * tile.blocks, kv_heads);
    let params = pb_attention_plan_params {
        plan: call.tensor("plan").data,
        qo_indptr: call.tensor("qo_indptr").data,
        kv_indptr: call.tensor("kv_indptr").data,
        kv_last_page_len: call.tensor("kv_last_page_len").data,
        batch: call.dim("batch") as i32,
        qo_len: (call.int("tokens") / call.dim("batch").max(1)) as i32,
        page_size: call.int("page_size") as i32,
        group: (call.int("qo_heads") / kv_heads) as i32,
        kv_heads: kv_heads as i32,
        rows: tile.rows as i32,
        keys: tile.keys as i32,
        blocks: layout.blocks as i32,
        split: call.int("split_tiles") as i32,
        capacity: layout.capacity as i32,
        causal: call.flag("causal").into(),
        window: call.int("window_left") as i32,
    };
    Launch::new(Params::new(params), [1, 1, 1], tactic.0[0])
}
