//! Launcher of softmax.

use super::sampling::{CLUSTER, VECTOR, aligned, has_clusters};
use crate::binding::{Checked, Choices, Launch, Params, Tactic, Target};
use crate::params::pb_softmax_params;

/// The longest row that one block takes where there are clusters: 32 KiB leave enough in flight.
const BLOCK_BYTES: i64 = 32768;
/// Values of a thread that stay in registers, as in softmax.cuh.
const HELD: u64 = 32;
const HELD_SINGLE: u64 = 8;

pub(crate) fn select(call: &Checked<'_>, target: Target, choices: &mut Choices) {
    let (logits, probs, vocab) = (call.tensor("logits"), call.tensor("probs"), call.dim("vocab"));
    let bytes = logits.dtype.bytes() as u32;
    let vectors = aligned(logits, vocab) && aligned(probs, vocab);
    let long = has_clusters(target) && vocab * i64::from(bytes) > BLOCK_BYTES;
    for blocks in [CLUSTER, 1] {
        if blocks == CLUSTER && !long {
            continue;
        }
        if vectors {
            choices.push(&[blocks, VECTOR]);
        }
        choices.push(&[blocks, bytes]);
    }
}

pub(crate) fn arrange(call: &Checked<'_>, tactic: &Tactic) -> Launch {
    let (logits, probs) = (call.tensor("logits"), call.tensor("probs"));
    let [blocks, vec, ..] = tactic.0;
    let vocab = call.dim("vocab");
    let params = pb_softmax_params {
        logits: logits.data,
        temperatures: call.tensor("temperatures").data,
        probs: probs.data,
        logits_stride: logits.stride(0),
        probs_stride: probs.stride(0),
        vocab: vocab as i32,
        temperature: call.scalar("temperature"),
    };
    let held = if vec == VECTOR { HELD } else { HELD_SINGLE };
    let threads = (vocab as u64).div_ceil(held * u64::from(blocks)).div_ceil(32) * 32;
    let grid = [call.dim("rows") as u32 * blocks, 1, 1];
    Launch::new(Params::new(params), grid, threads.min(1024) as u32).cluster(blocks)
}
