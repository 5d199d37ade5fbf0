"""What others call to read FP4 back."""

from parbake._arrays import cast, reshape


def e2m1_and_ufp8sf_scale_to_float(
    e2m1_tensor,
    ufp8_scale_tensor,
    global_scale_tensor=None,
    sf_vec_size=16,
    ufp8_type=1,
    is_sf_swizzled_layout=True,
    *,
    target=None,
):
    """The values of NVFP4 or MXFP4 as f32, where the tensors are: element · scale · global scale.

    Args:
        e2m1_tensor: uint8 [rows, hidden / 2], two elements to a byte, the first one in the low half.
        ufp8_scale_tensor: codes of the scales as uint8, as many as the layout has.
        global_scale_tensor: one number in a tensor, the reciprocal of what the quantiser was given; 1 without it.
        sf_vec_size: 16 for NVFP4, 32 for MXFP4.
        ufp8_type: 1, e4m3, for NVFP4; 0, UE8M0, for MXFP4.
        is_sf_swizzled_layout: scales lie in tiles of 128 rows and 4 blocks, else row by row.
        target: "host" runs it on the host target.

    Returns:
        f32 [rows, hidden].
    """
    if (sf_vec_size, ufp8_type) not in ((16, 1), (32, 0)):
        got = f"blocks of {sf_vec_size} with type {ufp8_type}"
        expected = "blocks of 16 with type 1 or of 32 with type 0"
        raise ValueError(f"e2m1_and_ufp8sf_scale_to_float: expected {expected}, got {got}")
    layout = 0 if is_sf_swizzled_layout else 2
    rows, pairs = e2m1_tensor.shape
    scale = reshape(ufp8_scale_tensor, _sf_shape(rows, 2 * pairs // sf_vec_size, layout))
    if global_scale_tensor is not None:
        global_scale_tensor = reshape(cast(global_scale_tensor, "f32"), (1,))
    return fp4_dequantize(
        e2m1_tensor,
        scale,
        global_scale=global_scale_tensor,
        layout=layout,
        format=0 if ufp8_type == 1 else 1,
        dtype="f32",
        target=target,
    )


def mxfp4_dequantize(a_fp4, a_sf, *, target=None):
    """The values of MXFP4 with scales in tiles of 128 rows and 4 blocks, as f32.

    Args:
        a_fp4: uint8 [rows, hidden / 2], two elements to a byte.
        a_sf: codes of the scales as uint8, as many as the layout has.
        target: "host" runs it on the host target.

    Returns:
        f32 [rows, hidden].
    """
    return e2m1_and_ufp8sf_scale_to_float(a_fp4, a_sf, None, 32, 0, target=target)


def mxfp4_dequantize_host(weight, scale, group_size=32, *, target=None):
    """The values of MXFP4 with scales row by row, as f32, where the tensors are.

    Args:
        weight: uint8 [rows, hidden / 2], two elements to a byte.
        scale: codes of the scales as uint8 [rows, hidden / 32].
        group_size: 32.
        target: "host" runs it on the host target.

    Returns:
        f32 [rows, hidden].
    """
    if group_size != 32:
        raise ValueError(f"mxfp4_dequantize_host: group_size: expected 32, got {group_size}")
    return e2m1_and_ufp8sf_scale_to_float(weight, scale, None, 32, 0, False, target=target)


def nvfp4_kv_dequantize(fp4_data, block_scales, global_scale, output_dtype="bf16", *, target=None):
    """The values of NVFP4 with scales row by row: element · scale · global_scale.

    Args:
        fp4_data: uint8 [rows, hidden / 2], two elements to a byte.
        block_scales: codes of the scales, e4m3, as uint8 [rows, hidden / 16].
        global_scale: one number in a tensor.
        output_dtype: bfloat16, float16 or float32.
        target: "host" runs it on the host target.

    Returns:
        [rows, hidden] of that type.
    """
    scale = reshape(cast(global_scale, "f32"), (1,))
    return fp4_dequantize(fp4_data, block_scales, global_scale=scale, dtype=output_dtype, target=target)
