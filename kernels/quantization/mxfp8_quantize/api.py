"""What others call mxfp8_quantize."""

from parbake._arrays import reshape


def _sf_layout(swizzled, layout):
    """The number of a layout: that of an enumeration, or 128x4 and linear by a flag."""
    if layout is None:
        return 0 if swizzled else 2
    return int(getattr(layout, "value", layout))


def _sf_shape(rows, blocks, layout):
    """The shape of block scales, padded where the layout is."""
    if layout == 2:
        return rows, blocks
    high = 128 if layout == 0 else 8
    return -(-rows // high) * high, -(-blocks // 4) * 4


def _sf_rows(x):
    """Rows and columns of a tensor whose leading dimensions are rows."""
    rows = 1
    for n in x.shape[:-1]:
        rows *= n
    return rows, x.shape[-1]


def mxfp8_quantize(
    input,
    is_sf_swizzled_layout=True,
    alignment=32,
    enable_pdl=None,
    backend="cuda",
    sf_swizzle_layout=None,
    *,
    target=None,
):
    """Quantises each 32 elements of a row to e4m3 with a power of two as their scale.

    The scale is the smallest power of two with amax <= 448 · scale; its code is log2(scale) + 127.

    Args:
        input: [.., hidden], of f16, bf16 or f32; hidden is a multiple of 32.
        is_sf_swizzled_layout: scales lie in tiles of 128 rows and 4 blocks, else row by row.
        alignment: what hidden is a multiple of.
        enable_pdl: ignored: launches are not chained to the kernel before.
        backend: ignored: there is one.
        sf_swizzle_layout: if given, the layout: 0 tiles of 128 × 4, 1 tiles of 8 × 4, 2 row by row.
        target: "host" runs it on the host target.

    Returns:
        The elements as float8_e4m3fn, of input's shape; and the codes of the scales as uint8, in one dimension. Padding
        of tiles is 0.
    """
    rows, hidden = _sf_rows(input)
    if hidden % max(alignment, 32):
        expected = f"a multiple of {max(alignment, 32)} columns"
        raise ValueError(f"mxfp8_quantize: input: expected {expected}, got {hidden}")
    layout = _sf_layout(is_sf_swizzled_layout, sf_swizzle_layout)
    high, wide = _sf_shape(rows, hidden // 32, layout)
    x = reshape(input, (rows, hidden))
    out, scale = _mxfp8_quantize(x, layout=layout, scale_rows=high, scale_columns=wide, target=target)
    return reshape(out, tuple(input.shape)), reshape(scale, (-1,))
