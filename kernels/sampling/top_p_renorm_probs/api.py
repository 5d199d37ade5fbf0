"""Renormalising as FlashInfer calls it: top_p is a number or a tensor."""

from parbake._arrays import cast, is_tensor


def top_p_renorm_probs(probs, top_p, is_deterministic=False, *, target=None):
    """Of each row the greatest probabilities that make up top_p of its sum, over their sum, the others 0.

    Kept are as few as it takes, and at least one; of equal ones the first.

    Takes the arguments of `flashinfer.sampling.top_p_renorm_probs`.

    Args:
        probs: f32, f16 or bf16 [rows, vocab], the last dimension dense, read. What is not positive counts as 0.
        top_p: A number, or a tensor of floats [rows]: one for each row. 0 or below keeps the greatest, 1 or above everything.
        is_deterministic: Accepted and ignored: results are deterministic always.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        As `probs`. A row of nothing positive is all 0; one with NaN or +inf is all NaN.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    if is_tensor(top_p):
        return _top_p_renorm_probs(probs, cast(top_p, "f32"), target=target)
    return _top_p_renorm_probs(probs, top_p=top_p, target=target)
