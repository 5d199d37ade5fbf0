"""The function of FlashInfer: a cache is one tensor or two, in either layout."""

from parbake._arrays import cast, is_tensor, permute, stack


def append_paged_kv_cache(
    append_key,
    append_value,
    batch_indices,
    positions,
    paged_kv_cache,
    kv_indices,
    kv_indptr,
    kv_last_page_len,
    kv_layout="NHD",
    *,
    target=None,
):
    """Writes keys and values of tokens into the pages of a cache.

    Takes the arguments of `flashinfer.page.append_paged_kv_cache`. The token at position n of request b goes to entry
    n % page_size of page kv_indices[kv_indptr[b] + n // page_size]. One whose batch index, position or page does not
    exist, negative ones among them, goes nowhere.

    Args:
        append_key: Keys [tokens, kv_heads, head_dim], f16, bf16, f32, e4m3, e5m2 or u8.
        append_value: Values of the same shape and element type.
        batch_indices: Request of each token.
        positions: Position of each token in its request.
        paged_kv_cache: (k_cache, v_cache), each [pages, page_size, kv_heads, head_dim], or for layout HND [pages,
            kv_heads, page_size, head_dim]; or one tensor with both, [pages, 2, ...]. Strides are free but for the last.
        kv_indices: Pages of all requests.
        kv_indptr: Where those of each request begin, [requests + 1].
        kv_last_page_len: Accepted and ignored: positions say where a request ends.
        kv_layout: "NHD" or "HND".
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        None. From JAX, whose arrays do not change, a new cache in the form of the given one.
    """
    if kv_layout not in ("NHD", "HND"):
        raise ValueError(f'expected kv_layout "NHD" or "HND", got {kv_layout!r}')
    one = is_tensor(paged_kv_cache)
    planes = (paged_kv_cache[:, 0], paged_kv_cache[:, 1]) if one else paged_kv_cache
    planes = _token_before_head(planes, kv_layout)
    indices = (cast(x, "i32") for x in (batch_indices, positions, kv_indices, kv_indptr))
    new = _append_paged_kv_cache(*planes, append_key, append_value, *indices, target=target)
    if new is None:
        return None
    new = _token_before_head(new, kv_layout)
    return stack(new, 1) if one else new


def _token_before_head(planes, kv_layout):
    return planes if kv_layout == "NHD" else tuple(permute(x, (0, 2, 1, 3)) for x in planes)
