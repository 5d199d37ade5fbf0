//! Launcher of sample.

use super::sampling::{self, CLUSTER, VECTOR, aligned, has_clusters, shared};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_sample_params;

/// The longest row that one block holds in the shared memory that every launch may have.
const HELD_ALONE: i64 = 8192;
/// Shared memory of a block of a cluster.
const MOST_SHARED: u32 = 220 * 1024;
/// Blocks of a cluster that holds no row.
const MANY_ROWS_CLUSTER: u32 = 4;
/// Rows of which so many are under way that it does not pay to hold them.
const MANY_ROWS: i64 = 128;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    let (rows, sources) = (call.dim("rows"), call.dim("sources"));
    if !call.given("indices") && rows != sources {
        wrong.add("x", "shape", format!("{rows} rows, one for each token"), sources.to_string());
    }
    sampling::check_random(call, wrong);
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let (x, vocab) = (call.tensor("x"), call.dim("vocab"));
    // Top-k rejects more draws than top-p does, and each takes another pass.
    let few_draws = !call.given("top_ks") && call.int("top_k") >= vocab;
    if vocab > HELD_ALONE && has_clusters(target) && aligned(x, vocab) && few_draws && call.dim("rows") >= MANY_ROWS {
        choices.push(&[0, MANY_ROWS_CLUSTER, VECTOR]);
    }
    let mut push = |held: u32, blocks: u32| {
        if aligned(x, vocab) {
            choices.push(&[held, blocks, VECTOR]);
        }
        choices.push(&[held, blocks, 4]);
    };
    if vocab <= HELD_ALONE {
        push(1, 1);
    } else if has_clusters(target) && shared(vocab, true, CLUSTER) <= MOST_SHARED {
        push(1, CLUSTER);
    }
    push(0, 1);
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (x, [held, blocks, ..]) = (call.tensor("x"), tactic.0);
    let (rows, vocab) = (call.dim("rows"), call.dim("vocab"));
    let params = pb_sample_params {
        x: x.data,
        indices: call.tensor("indices").data,
        tokens: call.tensor("tokens").data,
        valid: call.tensor("valid").data,
        seeds: call.tensor("seeds").data,
        offsets: call.tensor("offsets").data,
        top_ks: call.tensor("top_ks").data,
        top_ps: call.tensor("top_ps").data,
        min_ps: call.tensor("min_ps").data,
        seed: call.int("seed"),
        offset: call.int("offset"),
        x_stride: x.stride(0),
        sources: call.dim("sources"),
        seeds_step: sampling::step(call, "seeds"),
        offsets_step: sampling::step(call, "offsets"),
        vocab: vocab as i32,
        top_k: call.int("top_k") as i32,
        top_p: call.scalar("top_p"),
        min_p: call.scalar("min_p"),
        top_k_first: i32::from(call.flag("top_k_first")),
    };
    sampling::launch(Params::new(params), rows, vocab, held == 1, blocks)
}
