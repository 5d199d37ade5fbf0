"""What others call block_scale_interleave."""

from parbake._arrays import reshape, stack


def block_scale_interleave(unswizzled_sf, *, target=None):
    """Brings block scales into tiles of 128 rows and 4 columns, padded with zeros.

    Args:
        unswizzled_sf: uint8 [rows, columns], or [experts, rows, columns], each expert by itself.
        target: "host" runs it on the host target.

    Returns:
        uint8 in one dimension.
    """
    if len(unswizzled_sf.shape) == 3:
        experts, rows, columns = unswizzled_sf.shape
        if rows % 128 == 0:
            return block_scale_interleave(reshape(unswizzled_sf, (experts * rows, columns)), target=target)
        tiles = [_block_scale_interleave(unswizzled_sf[i], target=target) for i in range(experts)]
        return reshape(stack(tiles), (-1,))
    return reshape(_block_scale_interleave(unswizzled_sf, target=target), (-1,))


def nvfp4_block_scale_interleave(unswizzled_sf, *, target=None):
    """Another name of `block_scale_interleave`.

    Args:
        unswizzled_sf: uint8 [rows, columns], or [experts, rows, columns], each expert by itself.
        target: "host" runs it on the host target.

    Returns:
        uint8 in one dimension.
    """
    return block_scale_interleave(unswizzled_sf, target=target)
