//! Launcher of chain_speculative_sampling.

use super::sampling::{self, CLUSTER, VECTOR, aligned, has_clusters};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target, Wrong};
use crate::params::pb_chain_speculative_sampling_params;

/// The longest row that one block takes where there are clusters.
const ALONE: i64 = 8192;

pub(crate) fn check(call: &Checked<'_>, wrong: &mut Wrong) {
    sampling::check_random(call, wrong);
}

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let vocab = call.dim("vocab");
    let vectors = aligned(call.tensor("draft_probs"), vocab) && aligned(call.tensor("target_probs"), vocab);
    for blocks in [CLUSTER, 1] {
        if blocks == CLUSTER && !(has_clusters(target) && vocab > ALONE) {
            continue;
        }
        if vectors {
            choices.push(&[blocks, VECTOR]);
        }
        choices.push(&[blocks, 4]);
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (draft, target) = (call.tensor("draft_probs"), call.tensor("target_probs"));
    let (ids, tokens) = (call.tensor("draft_token_ids"), call.tensor("tokens"));
    let vocab = call.dim("vocab");
    let params = pb_chain_speculative_sampling_params {
        draft_probs: draft.data,
        draft_token_ids: ids.data,
        target_probs: target.data,
        seeds: call.tensor("seeds").data,
        offsets: call.tensor("offsets").data,
        tokens: tokens.data,
        accepted: call.tensor("accepted").data,
        emitted: call.tensor("emitted").data,
        seed: call.int("seed"),
        offset: call.int("offset"),
        draft_row: draft.stride(0),
        draft_position: draft.stride(1),
        target_row: target.stride(0),
        target_position: target.stride(1),
        ids_row: ids.stride(0),
        tokens_row: tokens.stride(0),
        seeds_step: sampling::step(call, "seeds"),
        offsets_step: sampling::step(call, "offsets"),
        drafts: call.dim("drafts") as i32,
        vocab: vocab as i32,
    };
    sampling::launch(Params::new(params), call.dim("rows"), vocab, false, tactic.0[0])
}
