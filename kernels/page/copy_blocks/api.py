"""Blocks may have any dimensions, and there may be a cache for each layer."""

from parbake._arrays import is_tensor, view


def copy_blocks(k_cache, v_cache, block_mapping, *, target=None):
    """Copies blocks within caches: for each pair of block_mapping, the block of the first number to that of the second.

    A pair with a block that does not exist, -1 for one, is passed over. A destination is in no other pair.

    Args:
        k_cache: A cache of keys, [blocks, ...], of which each block is dense; or a list of them, one for each layer.
        v_cache: The same for values.
        block_mapping: Source and destination of each copy, i64 [pairs, 2].
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        None. From JAX, whose arrays do not change, new caches in the form of the given ones.
    """
    if not is_tensor(k_cache):
        new = [copy_blocks(k, v, block_mapping, target=target) for k, v in zip(k_cache, v_cache)]
        return None if all(pair is None for pair in new) else tuple(map(list, zip(*new)))
    flat = (view(x, (x.shape[0], _elements(x.shape[1:]))) for x in (k_cache, v_cache))
    new = _copy_blocks(*flat, block_mapping, target=target)
    return None if new is None else tuple(view(y, x.shape) for x, y in zip((k_cache, v_cache), new))


def _elements(shape):
    elements = 1
    for extent in shape:
        elements *= extent
    return elements
