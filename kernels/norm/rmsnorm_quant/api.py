"""The scale as a tensor or as a number."""

from parbake._arrays import changes, is_tensor, reshape


def rmsnorm_quant(out, input, weight, scale, eps=1e-6, enable_pdl=None, *, weight_bias=0.0, target=None):
    """Root-mean-square norm of rows in 8 bits: out = x / sqrt(mean(x²) + eps) · (weight + weight_bias) / scale.

    Takes the arguments of `flashinfer.norm.rmsnorm_quant`.

    Args:
        out: The normalised rows over the scale, 8 bits [..., hidden], the last dimension dense, written: its type says
            how they are rounded. Beyond the largest number it is that number.
        input: The rows, f16 or bf16 [..., hidden], the last dimension dense, read.
        weight: A factor for each column, of the type of input, [hidden], dense, read.
        scale: What out is to be multiplied by, positive: a number, or an f32 tensor with one element on the device of
            input, which is read when the kernel runs.
        eps: Added to the mean square.
        enable_pdl: Accepted and ignored: launches are not chained to the kernel before.
        weight_bias: Added to each weight: 1 for weights stored as their difference from one.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        None: it writes to out. From JAX, new arrays in the order of the arguments that change.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.

    Example:
        >>> import parbake, torch
        >>> input = torch.randn(16, 4096, dtype=torch.bfloat16, device="cuda")
        >>> weight = torch.randn(4096, dtype=torch.bfloat16, device="cuda")
        >>> out = torch.empty(16, 4096, dtype=torch.float8_e4m3fn, device="cuda")
        >>> parbake.rmsnorm_quant(out, input, weight, 0.02)
    """
    value = 1.0
    if is_tensor(scale):
        scale = reshape(scale, (1,))
    else:
        scale, value = None, scale
    new = _rmsnorm_quant(
        input, weight, scale=scale, eps=eps, weight_bias=weight_bias, scale_value=value, out=out, target=target
    )
    return None if changes(input) else new
