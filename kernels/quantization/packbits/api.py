"""What others call packbits."""

from parbake._arrays import cast, dtype


def _is_little(function, bitorder):
    if bitorder not in ("big", "little"):
        raise ValueError(f'{function}: bitorder: expected "big" or "little", got {bitorder!r}')
    return bitorder == "little"


def _as_bits(x):
    """What is neither booleans nor bytes becomes booleans: true where it is not 0."""
    return x if dtype(x) in ("bool", "u8") else cast(x, "bool")


def packbits(x, bitorder="big", *, target=None):
    """Packs eight elements into the bits of a byte: a bit is set where an element is not 0.

    Args:
        x: the elements, in one dimension.
        bitorder: "big", the first element is the highest bit, or "little", it is the lowest.
        target: "host" runs it on the host target.

    Returns:
        uint8, an eighth as many, rounded up. Bits beyond the last element are 0.
    """
    return _packbits(_as_bits(x), little=_is_little("packbits", bitorder), target=target)
