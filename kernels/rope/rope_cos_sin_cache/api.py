"""The functions of FlashInfer that take cosines and sines from a cache: heads are one dimension with their elements."""

from parbake._arrays import changes, empty, view


def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox=True, *, target=None):
    """Turns queries and keys by the cosines and sines of their positions.

    Takes the arguments of `flashinfer.rope.apply_rope_with_cos_sin_cache`. The columns of a head from rotary_dim on are
    as they were, and so is a token whose position has no row of the cache.

    Args:
        positions: Position of each token, i32 or i64 [tokens].
        query: Queries [tokens, heads * head_size] or [tokens, heads, head_size], f16, bf16 or f32.
        key: Keys of the same element type, with heads of their own number.
        head_size: Elements of a head.
        cos_sin_cache: f32 [positions, rotary_dim]: for each position rotary_dim / 2 cosines, then as many sines.
        is_neox: Whether pairs are columns (i, i + rotary_dim / 2); otherwise (2i, 2i + 1).
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        Queries and keys, turned, in the shapes that they came in.
    """
    outputs = [empty(x, x.shape) for x in (query, key)]
    turned = _turned_by_cache(positions, query, key, head_size, cos_sin_cache, is_neox, outputs, target)
    return tuple(view(y, x.shape) for x, y in zip((query, key), turned))


def apply_rope_with_cos_sin_cache_inplace(
    positions, query, key, head_size, cos_sin_cache, is_neox=True, *, target=None
):
    """Turns queries and keys by the cosines and sines of their positions, in place.

    Takes the arguments of `flashinfer.rope.apply_rope_with_cos_sin_cache_inplace`. The columns of a head from
    rotary_dim on stay, and so does a token whose position has no row of the cache.

    Args:
        positions: Position of each token, i32 or i64 [tokens].
        query: Queries [tokens, heads * head_size] or [tokens, heads, head_size], f16, bf16 or f32; tokens may have any
            stride.
        key: Keys of the same element type, with heads of their own number.
        head_size: Elements of a head.
        cos_sin_cache: f32 [positions, rotary_dim]: for each position rotary_dim / 2 cosines, then as many sines.
        is_neox: Whether pairs are columns (i, i + rotary_dim / 2); otherwise (2i, 2i + 1).
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        None. From JAX, whose arrays do not change, new queries and keys.
    """
    if not changes(query):
        return apply_rope_with_cos_sin_cache(
            positions, query, key, head_size, cos_sin_cache, is_neox, target=target
        )
    _turned_by_cache(positions, query, key, head_size, cos_sin_cache, is_neox, (query, key), target)


def _turned_by_cache(positions, query, key, head_size, cos_sin_cache, is_neox, outputs, target):
    query, key, query_out, key_out = (_in_heads(x, head_size) for x in (query, key, *outputs))
    given = {"q_out": query_out, "k_out": key_out} if changes(query) else {}
    return rope_cos_sin_cache(
        query, key, positions, cos_sin_cache, interleave=not is_neox, **given, target=target
    )


def _in_heads(x, head_size):
    elements = 1
    for extent in x.shape[1:]:
        elements *= extent
    if head_size < 1 or elements % head_size:
        raise ValueError(f"expected heads of {head_size} elements, got {list(x.shape)}")
    return view(x, (x.shape[0], elements // head_size, head_size))
