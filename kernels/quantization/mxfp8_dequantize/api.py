"""What others call mxfp8_dequantize_host."""

from parbake._arrays import reshape


def mxfp8_dequantize_host(
    input, scale_tensor, is_sf_swizzled_layout=True, sf_swizzle_layout=None, *, target=None
):
    """The values of MXFP8, where the tensors are.

    Args:
        input: float8_e4m3fn [rows, hidden].
        scale_tensor: codes of the scales as uint8, as many as the layout has.
        is_sf_swizzled_layout: scales lie in tiles of 128 rows and 4 blocks, else row by row.
        sf_swizzle_layout: if given, the layout: 0 tiles of 128 × 4, 1 tiles of 8 × 4, 2 row by row.
        target: "host" runs it on the host target.

    Returns:
        f32 [rows, hidden].
    """
    layout = _sf_layout(is_sf_swizzled_layout, sf_swizzle_layout)
    rows, hidden = input.shape
    scale = reshape(scale_tensor, _sf_shape(rows, hidden // 32, layout))
    return mxfp8_dequantize(input, scale, layout=layout, dtype="f32", target=target)
