"""The scale as a tensor or as a number."""

from parbake._arrays import changes, is_tensor, reshape


def layernorm_quant(out, input, gemma, beta, scale, eps=1e-6, enable_pdl=None, *, target=None):
    """Norm of rows by mean and variance in 8 bits: out = ((x − mean(x)) / sqrt(var(x) + eps) · weight + bias) / scale.

    Takes the arguments of `flashinfer.norm.layernorm_quant`.

    Args:
        out: The normalised rows over the scale, 8 bits [..., hidden], the last dimension dense, written: its type says
            how they are rounded. Beyond the largest number it is that number.
        input: The rows, f16 or bf16 [..., hidden], the last dimension dense, read.
        gemma: A factor for each column, f32 [hidden], dense, read.
        beta: Added to each column, f32 [hidden], dense, read.
        scale: What out is to be multiplied by, positive: a number, or an f32 tensor with one element on the device of
            input, which is read when the kernel runs.
        eps: Added to the variance.
        enable_pdl: Accepted and ignored: launches are not chained to the kernel before.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        None: it writes to out. From JAX, a new array.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.

    Example:
        >>> import parbake, torch
        >>> input = torch.randn(16, 4096, dtype=torch.bfloat16, device="cuda")
        >>> gemma = torch.randn(4096, dtype=torch.float32, device="cuda")
        >>> beta = torch.randn(4096, dtype=torch.float32, device="cuda")
        >>> out = torch.empty(16, 4096, dtype=torch.float8_e4m3fn, device="cuda")
        >>> parbake.layernorm_quant(out, input, gemma, beta, 0.02)
    """
    value = 1.0
    if is_tensor(scale):
        scale = reshape(scale, (1,))
    else:
        scale, value = None, scale
    new = _layernorm_quant(input, gemma, beta, scale=scale, eps=eps, scale_value=value, out=out, target=target)
    return None if changes(input) else new
