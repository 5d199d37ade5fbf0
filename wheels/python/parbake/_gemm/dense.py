"""Products of one matrix with another, and of batches of them."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.wrong import dtype as element
from parbake._attention.wrong import refuse
from parbake._gemm.workspace import processors, room
from parbake.gemm import bmm
from parbake.quantization import fp8_quantize_per_block, fp8_quantize_per_token_group

ACTIVATIONS = {"none": 0, "silu": 1, "gelu": 2, "gelu_tanh": 3, "relu": 4}
# Elements along k, and rows of b, that share a factor.
BLOCK = 128


def mm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    activation: str = "none",
    out: torch.Tensor | None = None,
    out_dtype: Any = None,
    *,
    target: str | None = None,
) -> torch.Tensor:
    """activation(a_scale · b_scale · a bᵀ + bias), of weights as models store them: `parbake.bmm` of one matrix.

    Args:
        a: f16, bf16, e4m3 or e5m2 [m, k], any strides.
        b: [n, k], a row for each column of the result; of the type of a, or e4m3 or e5m2 if a has 8 bits (one of them
            e4m3). A matrix [k, n] is given as its transposed view.
        bias: Added to each row, [n], of the type of the result.
        a_scale: Factors of a, f32: one; one for each row, [m]; with 8 bits one for 128 elements of a row,
            [m, k / 128], or for 128 x 128 elements, [m / 128, k / 128], rounded up.
        b_scale: Factors of b, f32: one; one for each row, [n]; with 8 bits one for 128 x 128 elements,
            [n / 128, k / 128], rounded up.
        activation: "none", "silu", "gelu", "gelu_tanh" or "relu".
        out: [m, n], rows dense. Allocated if it is not given.
        out_dtype: What it is allocated with: the type of a or f32; of 8 bits bf16 (the default), f16 or f32.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device or number does not fit.
        NotImplementedError: There is no kernel for the combination.

    Example:
        >>> import parbake, torch
        >>> x = torch.randn(3, 64, dtype=torch.bfloat16, device="cuda")
        >>> weight = torch.randn(40, 64, dtype=torch.bfloat16, device="cuda")
        >>> out = parbake.mm(x, weight, activation="silu")
    """
    if activation not in ACTIVATIONS:
        refuse(ValueError, "mm", "activation", " or ".join(ACTIVATIONS), repr(activation))
    matrices("mm", 2, a=a, b=b)
    scales = factors("mm", "a_scale", a_scale), factors("mm", "b_scale", b_scale)
    out = result("mm", a, (a.shape[0], b.shape[0]), out, out_dtype)
    product(a[None], b[None], out[None], bias, *scales, ACTIVATIONS[activation], target)
    return out


def mm_bf16(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    pdl: bool = False,
    out: torch.Tensor | None = None,
    out_dtype: Any = torch.bfloat16,
    backend: str = "auto",
    *,
    target: str | None = None,
) -> torch.Tensor:
    """a b + bias in 16 bits. Takes the arguments of `flashinfer.gemm.mm_bf16`.

    Args:
        a: bf16 [m, k]; f16 too, with an `out_dtype` that goes with it.
        b: [k, n], best column-major: the transposed view of weights [n, k].
        bias: Added to each row, [n], of the type of the result.
        pdl: Accepted, without effect.
        out: [m, n], rows dense. Allocated if it is not given.
        out_dtype: What it is allocated with: the type of a, or f32.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.

    Example:
        >>> import parbake, torch
        >>> x = torch.randn(3, 64, dtype=torch.bfloat16, device="cuda")
        >>> weight = torch.randn(40, 64, dtype=torch.bfloat16, device="cuda")
        >>> out = parbake.mm_bf16(x, weight.T)
    """
    matrices("mm_bf16", 2, a=a, b=b)
    out = result("mm_bf16", a, (a.shape[0], b.shape[1]), out, out_dtype)
    product(a[None], b.mT[None], out[None], bias, None, None, 0, target)
    return out


def bmm_bf16(
    A: torch.Tensor,
    B: torch.Tensor,
    out: torch.Tensor | None = None,
    out_dtype: Any = torch.bfloat16,
    backend: str = "auto",
    *,
    target: str | None = None,
) -> torch.Tensor:
    """A B in 16 bits, batch by batch. Takes the arguments of `flashinfer.gemm.bmm_bf16`.

    Args:
        A: bf16 [batch, m, k]; f16 too, with an `out_dtype` that goes with it.
        B: [batch, k, n], best column-major: the transposed view of [batch, n, k].
        out: [batch, m, n], rows dense. Allocated if it is not given.
        out_dtype: What it is allocated with: the type of A, or f32.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    matrices("bmm_bf16", 3, A=A, B=B)
    out = result("bmm_bf16", A, (A.shape[0], A.shape[1], B.shape[2]), out, out_dtype)
    product(A, B.mT, out, None, None, None, 0, target)
    return out


def bmm_fp8(
    A: torch.Tensor,
    B: torch.Tensor,
    A_scale: torch.Tensor,
    B_scale: torch.Tensor,
    dtype: Any,
    out: torch.Tensor | None = None,
    backend: str = "auto",
    *,
    target: str | None = None,
) -> torch.Tensor:
    """A_scale · B_scale · A B in 8 bits, batch by batch. Takes the arguments of `flashinfer.gemm.bmm_fp8`.

    Args:
        A: e4m3 or e5m2 [batch, m, k].
        B: [batch, k, n], best column-major: the transposed view of [batch, n, k]. e4m3, or e5m2 if A is e4m3.
        A_scale: The factor of A, an f32 tensor of one element.
        B_scale: The factor of B, likewise.
        dtype: What `out` is allocated with: bf16, f16 or f32.
        out: [batch, m, n], rows dense. Allocated if it is not given.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    matrices("bmm_fp8", 3, A=A, B=B)
    eight_bits("bmm_fp8", A=A, B=B)
    scales = []
    for name, scale in (("A_scale", A_scale), ("B_scale", B_scale)):
        matrices("bmm_fp8", None, **{name: scale})
        if scale.numel() != 1:
            refuse(ValueError, "bmm_fp8", name, "one element", list(scale.shape))
        scales.append(scale.reshape(1, 1, 1))
    out = result("bmm_fp8", A, (A.shape[0], A.shape[1], B.shape[2]), out, dtype)
    product(A, B.mT, out, None, *scales, 0, target)
    return out


def gemm_fp8_nt_groupwise(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    scale_major_mode: str | None = None,
    mma_sm: int = 1,
    scale_granularity_mnk: tuple[int, int, int] = (1, 128, 128),
    out: torch.Tensor | None = None,
    out_dtype: Any = None,
    backend: str = "auto",
    *,
    target: str | None = None,
) -> torch.Tensor:
    """a bᵀ in 8 bits with factors for groups of elements. Takes the arguments of `flashinfer.gemm.gemm_fp8_nt_groupwise`.

    Args:
        a: e4m3 or e5m2 [m, k].
        b: [n, k], e4m3, or e5m2 if a is e4m3.
        a_scale: f32 [m / gm, k / 128], rounded up, with the first number of the granularity as gm; with "MN" its
            transpose.
        b_scale: f32 [n / 128, k / 128], rounded up; with "MN" its transpose.
        scale_major_mode: "K" or "MN": how factors are laid out. Any strides will do, so that a transposed view of either
            is taken for the other.
        mma_sm: Accepted, without effect.
        scale_granularity_mnk: (1, 128, 128) or (128, 128, 128).
        out: [m, n], rows dense. Allocated if it is not given.
        out_dtype: What it is allocated with: bf16 (the default), f16 or f32.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.

    Example:
        >>> import parbake, torch
        >>> x = torch.randn(3, 256, device="cuda")
        >>> q, scale = parbake.fp8_quantize_per_token_group(x, out_dtype="e4m3", scale_dtype="f32")
        >>> weight = torch.randn(40, 256, device="cuda").to(torch.float8_e4m3fn)
        >>> out = parbake.gemm_fp8_nt_groupwise(q, weight, scale, torch.ones(1, 2, device="cuda"), "K")
    """
    where = "gemm_fp8_nt_groupwise"
    matrices(where, 2, a=a, b=b, a_scale=a_scale, b_scale=b_scale)
    eight_bits(where, a=a, b=b)
    rows = granularity(where, scale_granularity_mnk)
    a_scale = by_k(where, "a_scale", a_scale, scale_major_mode, (-(-a.shape[0] // rows), -(-a.shape[1] // BLOCK)))
    b_scale = by_k(where, "b_scale", b_scale, scale_major_mode, (-(-b.shape[0] // BLOCK), -(-b.shape[1] // BLOCK)))
    out = result(where, a, (a.shape[0], b.shape[0]), out, out_dtype)
    product(a[None], b[None], out[None], None, a_scale[None], b_scale[None], 0, target)
    return out


def gemm_fp8_nt_blockscaled(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    scale_major_mode: str = "MN",
    mma_sm: int = 1,
    out: torch.Tensor | None = None,
    out_dtype: Any = None,
    *,
    target: str | None = None,
) -> torch.Tensor:
    """`gemm_fp8_nt_groupwise` with factors of 128 x 128 elements on both sides.

    Takes the arguments of `flashinfer.gemm.gemm_fp8_nt_blockscaled`.
    """
    return gemm_fp8_nt_groupwise(
        a, b, a_scale, b_scale, scale_major_mode, mma_sm, (BLOCK, BLOCK, BLOCK), out, out_dtype, target=target
    )


def fp8_blockscale_gemm_sm90(
    input: torch.Tensor,
    weight: torch.Tensor,
    input_scale: torch.Tensor | None = None,
    weight_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    out_dtype: Any = None,
    *,
    target: str | None = None,
) -> torch.Tensor:
    """input · weightᵀ in 8 bits with factors for groups of elements; what has 16 bits is quantised first.

    Takes the arguments of `flashinfer.gemm.fp8_blockscale_gemm_sm90`, on every architecture.

    Args:
        input: e4m3 [m, k]; or bf16 or f16, which is quantised in groups of 128 elements of a row.
        weight: e4m3 [n, k]; or bf16 or f16, which is quantised in blocks of 128 x 128 at each call.
        input_scale: With e4m3 f32 [m, k / 128], rounded up.
        weight_scale: With e4m3 f32 [n / 128, k / 128], rounded up.
        out: [m, n], rows dense. Allocated if it is not given.
        out_dtype: What it is allocated with: bf16 (the default), f16 or f32.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    where = "fp8_blockscale_gemm_sm90"
    matrices(where, 2, input=input, weight=weight)
    pairs = {"input": (input, input_scale), "weight": (weight, weight_scale)}
    for argument, (tensor, scale) in pairs.items():
        narrow = tensor.element_size() == 1
        if (scale is not None) != narrow:
            expected = "the factors of 8 bits" if narrow else f"nothing: {argument} is quantised here"
            refuse(ValueError, where, f"{argument}_scale", expected, "None" if scale is None else "a tensor")
    if input_scale is None:
        input, input_scale = fp8_quantize_per_token_group(input, out_dtype="e4m3", scale_dtype="f32", target=target)
    if weight_scale is None:
        weight, weight_scale = fp8_quantize_per_block(weight, out_dtype="e4m3", target=target)
    return gemm_fp8_nt_groupwise(input, weight, input_scale, weight_scale, "K", out=out, out_dtype=out_dtype, target=target)


def product(a, b, out, bias, a_scale, b_scale, activation, target):
    """The launch: a [batch, m, k], b [batch, n, k]."""
    batch, m, n = out.shape
    partial, tickets = room(a, batch, m, n)
    bmm(
        a, b, partial, tickets, bias, a_scale, b_scale, activation, processors(a.device), out, target=target
    )  # fmt: skip


def matrices(where: str, rank: int | None, **named: Any) -> None:
    """Refuses what is no tensor of so many dimensions."""
    for argument, tensor in named.items():
        if not isinstance(tensor, torch.Tensor):
            refuse(TypeError, where, argument, "a tensor", type(tensor).__name__)
        if rank is not None and tensor.dim() != rank:
            refuse(ValueError, where, argument, f"{rank} dimensions", list(tensor.shape))


def eight_bits(where: str, **named: torch.Tensor) -> None:
    for argument, tensor in named.items():
        if tensor.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
            refuse(TypeError, where, argument, "e4m3 or e5m2", tensor.dtype)


def result(where: str, a: torch.Tensor, shape: tuple[int, ...], out: torch.Tensor | None, out_dtype: Any) -> torch.Tensor:
    """`out`, allocated if it is None. What it must be but for its shape the op says."""
    if out is not None:
        matrices(where, None, out=out)
        if tuple(out.shape) != tuple(shape):
            refuse(ValueError, where, "out", list(shape), list(out.shape))
        return out
    wanted = element(where, "out_dtype", out_dtype)
    if wanted is None:
        wanted = torch.bfloat16 if a.element_size() == 1 else a.dtype
    return a.new_empty(shape, dtype=wanted)


def factors(where: str, argument: str, scale: torch.Tensor | None) -> torch.Tensor | None:
    """One, one for each row, or [rows, blocks], as bmm takes them."""
    if scale is None:
        return None
    matrices(where, None, **{argument: scale})
    if scale.dim() > 2:
        refuse(ValueError, where, argument, "at most 2 dimensions", list(scale.shape))
    if scale.dim() < 2:
        return scale.reshape(1, -1, 1)
    return scale[None]


def granularity(where: str, given: Any) -> int:
    """Rows of a that share a factor."""
    if tuple(given) not in ((1, BLOCK, BLOCK), (BLOCK, BLOCK, BLOCK)):
        refuse(NotImplementedError, where, "scale_granularity_mnk", "(1, 128, 128) or (128, 128, 128)", given)
    return given[0]


def by_k(where: str, argument: str, scale: torch.Tensor, mode: str | None, shape: tuple[int, ...]) -> torch.Tensor:
    """Factors [.., rows, blocks along k], of a shape that is known."""
    if mode not in ("K", "MN"):
        refuse(ValueError, where, "scale_major_mode", '"K" or "MN"', repr(mode))
    expected = shape if mode == "K" else (*shape[:-2], shape[-1], shape[-2])
    if tuple(scale.shape) != expected:
        refuse(ValueError, where, argument, list(expected), list(scale.shape))
    return scale if mode == "K" else scale.mT
