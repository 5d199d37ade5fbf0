"""Softmax as FlashInfer calls it: the temperature is a number or a tensor."""

from parbake._arrays import cast, is_tensor


def softmax(logits, temperature=None, enable_pdl=None, *, target=None):
    """Probabilities of rows of logits: softmax(logits / temperature).

    Takes the arguments of `flashinfer.sampling.softmax`.

    Args:
        logits: f32, f16 or bf16 [rows, vocab], the last dimension dense, read.
        temperature: A number, or a tensor of floats [rows]: one for each row. 0 or below puts 1 on the first greatest
            entry. None is 1.
        enable_pdl: Accepted and ignored: launches are not chained to the kernel before.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        f32 [rows, vocab]. A row of nothing but -inf is all 0; one with NaN is all NaN.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    if temperature is None:
        return _softmax(logits, target=target)
    if is_tensor(temperature):
        return _softmax(logits, cast(temperature, "f32"), target=target)
    return _softmax(logits, temperature=temperature, target=target)
