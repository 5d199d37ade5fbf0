"""Speculative sampling as FlashInfer calls it: counters are made if they are not given."""

from parbake._arrays import cast, full


def chain_speculative_sampling(
    draft_probs, draft_token_ids, target_probs, maybe_output_accepted_token_num=None,
    maybe_output_emitted_draft_token_num=None, deterministic=True, generator=None, seed=None, offset=None,
    *, target=None,
):
    """Accepts draft tokens up to the first that the target model refuses, and draws the next.

    Takes the arguments of `flashinfer.sampling.chain_speculative_sampling`.

    Args:
        draft_probs: Probabilities of the draft model, f32 [rows, drafts, vocab], the last dimension dense.
        draft_token_ids: The draft tokens, integers [rows, drafts].
        target_probs: Probabilities of the target model, f32 [rows, drafts + 1, vocab], the last dimension dense.
        maybe_output_accepted_token_num: int32 [rows], increased by the number of tokens that are acceptable each for
            itself. Made, and 0, if it is not given.
        maybe_output_emitted_draft_token_num: int32 [rows], increased by the number of draft tokens before the drawn one.
            Made, and 0, if it is not given.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of
            the device. Its offset is advanced.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number
            above 2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens, int32 [rows, drafts + 1]: accepted ones, the drawn one, then -1; and the two counters.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    rows, drafts = draft_token_ids.shape
    accepted, emitted = maybe_output_accepted_token_num, maybe_output_emitted_draft_token_num
    accepted = full(draft_probs, (rows,), 0, "i32") if accepted is None else accepted
    emitted = full(draft_probs, (rows,), 0, "i32") if emitted is None else emitted
    # As for the other samplers: kernels/sampling/sample/api.py.
    seeds, offsets, seed, offset = _random(draft_probs, rows * (drafts + 1), generator, seed, offset)
    result = _chain_speculative_sampling(
        accepted, emitted, cast(draft_probs, "f32"), cast(draft_token_ids, "i32"), cast(target_probs, "f32"), seeds,
        offsets, seed, offset, target=target,
    )
    # Arrays of JAX do not change: the counters come back with the tokens.
    return result if isinstance(result, tuple) else (result, accepted, emitted)
