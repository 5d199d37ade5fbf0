"""What others call segment_packbits."""


def segment_packbits(x, indptr, bitorder="big", *, target=None):
    """Packs segments of x, each by itself, as `packbits` does.

    How many bytes there are is read from the device: this waits for it, and no graph can hold it.

    Args:
        x: the elements of all segments, in one dimension.
        indptr: where segments begin, and the end: int32 or int64 [segments + 1].
        bitorder: "big", the first element of a segment is the highest bit, or "little", it is the lowest.
        target: "host" runs it on the host target.

    Returns:
        The packed segments as uint8, and where they begin, and the end, as int32 [segments + 1].
    """
    little = _is_little("segment_packbits", bitorder)
    begins = packed_indptr(indptr, target=target)
    packed = int(begins[-1])
    return _segment_packbits(_as_bits(x), indptr, begins, little=little, packed=packed, target=target), begins
