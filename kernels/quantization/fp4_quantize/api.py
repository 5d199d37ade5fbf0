"""What others call fp4_quantize, and its special forms."""

from parbake._arrays import cast, reshape


def fp4_quantize(
    input,
    global_scale=None,
    sf_vec_size=16,
    sf_use_ue8m0=False,
    is_sf_swizzled_layout=True,
    is_sf_8x4_layout=False,
    is_global_scale_inversed=False,
    enable_pdl=None,
    backend="cuda",
    *,
    target=None,
):
    """Quantises blocks of a row to 4 bits (e2m1) with a scale each: NVFP4 or MXFP4.

    NVFP4: the scale is (amax · (1/6)) · global_scale as e4m3, an element is multiplied by
    1 / (scale · (1 / global_scale)). MXFP4: the scale is the smallest power of two with amax <= 6 · scale. Elements
    are rounded to nearest, a tie to the even code, and saturate at ±6; NaN becomes 6.

    Args:
        input: [.., hidden], of f16, bf16 or f32; hidden is a multiple of the block.
        global_scale: one number in a tensor, 448 · 6 / max(abs(input)); of MXFP4 it is not looked at.
        sf_vec_size: 16 for NVFP4, 32 for MXFP4.
        sf_use_ue8m0: false for NVFP4, true for MXFP4.
        is_sf_swizzled_layout: scales lie in tiles of 128 rows and 4 blocks, else row by row.
        is_sf_8x4_layout: tiles have 8 rows instead.
        is_global_scale_inversed: global_scale is the reciprocal.
        enable_pdl: ignored: launches are not chained to the kernel before.
        backend: ignored: there is one.
        target: "host" runs it on the host target.

    Returns:
        Two elements to a byte, the first one in the low half, as uint8 [.., hidden / 2]; and the codes of the scales as
        uint8 [rows, blocks], both padded where the layout is.
    """
    mxfp4 = sf_vec_size == 32 and sf_use_ue8m0
    if not mxfp4 and (sf_vec_size != 16 or sf_use_ue8m0):
        got = f"blocks of {sf_vec_size} with {'UE8M0' if sf_use_ue8m0 else 'e4m3'} scales"
        raise ValueError(f"fp4_quantize: expected blocks of 16 with e4m3 or of 32 with UE8M0 scales, got {got}")
    if not mxfp4 and global_scale is None:
        raise ValueError("fp4_quantize: global_scale: expected a tensor of one number, got None")
    rows, hidden = _sf_rows(input)
    layout = (1 if is_sf_8x4_layout else 0) if is_sf_swizzled_layout else 2
    high, wide = _sf_shape(rows, hidden // sf_vec_size, layout)
    scale = None
    if not mxfp4:
        scale = reshape(cast(global_scale, "f32"), (1,))
        scale = 1.0 / scale if is_global_scale_inversed else scale
    out, codes = _fp4_quantize(
        reshape(input, (rows, hidden)),
        global_scale=scale,
        layout=layout,
        format=1 if mxfp4 else 0,
        scale_rows=high,
        scale_columns=wide,
        target=target,
    )
    return reshape(out, (*input.shape[:-1], hidden // 2)), codes


def nvfp4_quantize(
    a,
    a_global_sf,
    sfLayout=0,
    do_shuffle=False,
    sf_vec_size=16,
    enable_pdl=None,
    backend="cuda",
    *,
    per_token_activation=False,
    expanded_idx_to_permuted_idx=None,
    target=None,
):
    """Quantises to NVFP4: see `fp4_quantize`.

    Args:
        a: [.., hidden], of f16, bf16 or f32; hidden is a multiple of 16.
        a_global_sf: one number in a tensor, 448 · 6 / max(abs(a)).
        sfLayout: of the scales: 0 tiles of 128 × 4, 1 tiles of 8 × 4, 2 row by row.
        do_shuffle: not supported.
        sf_vec_size: 16.
        enable_pdl: ignored: launches are not chained to the kernel before.
        backend: ignored: there is one.
        per_token_activation: not supported.
        expanded_idx_to_permuted_idx: not supported.
        target: "host" runs it on the host target.

    Returns:
        Two elements to a byte as uint8 [.., hidden / 2], and the codes of the scales as uint8 [rows, blocks].
    """
    for name, given in (
        ("do_shuffle", do_shuffle),
        ("per_token_activation", per_token_activation),
        ("expanded_idx_to_permuted_idx", expanded_idx_to_permuted_idx is not None),
    ):
        if given:
            raise ValueError(f"nvfp4_quantize: {name}: expected its default, which is all that is supported")
    layout = _sf_layout(True, sfLayout)
    return fp4_quantize(
        a,
        a_global_sf,
        sf_vec_size,
        is_sf_swizzled_layout=layout != 2,
        is_sf_8x4_layout=layout == 1,
        target=target,
    )


def mxfp4_quantize(a, backend="cuda", enable_pdl=None, *, target=None):
    """Quantises to MXFP4 with scales in tiles of 128 rows and 4 blocks: see `fp4_quantize`.

    Args:
        a: [.., hidden], of f16, bf16 or f32; hidden is a multiple of 32.
        backend: ignored: there is one.
        enable_pdl: ignored: launches are not chained to the kernel before.
        target: "host" runs it on the host target.

    Returns:
        Two elements to a byte as uint8 [.., hidden / 2], and the codes of the scales as uint8 [rows, blocks], padded.
    """
    return fp4_quantize(a, None, 32, True, target=target)


def nvfp4_kv_quantize(input, global_scale, *, target=None):
    """Quantises to NVFP4 with scales row by row: see `fp4_quantize`.

    Args:
        input: [rows, hidden], of f16, bf16 or f32; hidden is a multiple of 16.
        global_scale: one number in a tensor, 448 · 6 / max(abs(input)).
        target: "host" runs it on the host target.

    Returns:
        Two elements to a byte as uint8 [rows, hidden / 2], and the codes of the scales as uint8 [rows, hidden / 16].
    """
    return fp4_quantize(input, global_scale, is_sf_swizzled_layout=False, target=target)
