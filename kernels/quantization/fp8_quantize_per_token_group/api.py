"""What others call per_token_group_quant_8bit."""

from parbake._arrays import changes, empty, permute


def per_token_group_quant_8bit(
    x,
    group_size,
    eps=1e-10,
    dst_dtype=None,
    column_major_scales=False,
    scale_tma_aligned=False,
    scale_ue8m0=False,
    *,
    target=None,
):
    """Quantises each 128 elements of a row to 8-bit floating point with a scale of their own.

    The scale is max(amax, eps) divided by the largest value of the type. An element is multiplied by the reciprocal of
    its scale, rounded to nearest even and saturated. `fp8_quantize_per_token_group` says it exactly.

    Args:
        x: [rows, hidden], of f16, bf16 or f32; rows may be strided.
        group_size: 128.
        eps: the least amax of a scale.
        dst_dtype: float8_e4m3fn, which None means, or float8_e5m2.
        column_major_scales: the scales of a column of groups lie next to each other.
        scale_tma_aligned: such columns begin at multiples of 16 bytes: rows are padded to a multiple of 4.
        scale_ue8m0: scales are rounded up to powers of two; they stay f32.
        target: "host" runs it on the host target.

    Returns:
        The quantised elements, and the scales as f32 [rows, hidden / 128, rounded up]. By columns they are a view. JAX
        knows no strides: its scales are by rows.
    """
    if group_size != 128:
        raise ValueError(f"per_token_group_quant_8bit: group_size: expected 128, got {group_size}")
    if scale_tma_aligned and not column_major_scales:
        raise ValueError("per_token_group_quant_8bit: scale_tma_aligned: expected column_major_scales with it")
    scale = None
    if column_major_scales and changes(x):
        rows, groups = x.shape[0], -(-x.shape[1] // 128)
        column = -(-rows // 4) * 4 if scale_tma_aligned else rows
        scale = permute(empty(x, (groups, column), "f32"), (1, 0))[:rows]
    dtype = "e4m3" if dst_dtype is None else dst_dtype
    kinds = {"out_dtype": dtype} if scale is not None else {"out_dtype": dtype, "scale_dtype": "f32"}
    return fp8_quantize_per_token_group(x, eps=eps, power_of_two=scale_ue8m0, scale=scale, target=target, **kinds)
