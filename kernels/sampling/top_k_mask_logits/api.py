"""Masking as FlashInfer calls it: top_k is a number or a tensor."""

from parbake._arrays import cast, is_tensor


def top_k_mask_logits(logits, top_k, *, target=None):
    """Of each row the k greatest logits, the others -inf: exactly k, of equal ones the first.

    Takes the arguments of `flashinfer.sampling.top_k_mask_logits`.

    Args:
        logits: f32, f16 or bf16 [rows, vocab], the last dimension dense, read. NaN is greater than everything.
        top_k: A number, or a tensor of whole numbers [rows]: one for each row. Less than 1 counts as 1; vocab or more keeps
            everything.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        As `logits`; what stays is unchanged, also -inf and NaN.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    if is_tensor(top_k):
        return _top_k_mask_logits(logits, cast(top_k, "i32"), target=target)
    return _top_k_mask_logits(logits, top_k=top_k, target=target)
