"""The function of FlashInfer that turns, converts to FP8 and appends: caches of either layout, and those of MLA."""

from parbake._arrays import cast, dtype, empty, name, permute, split


def rope_quantize_fp8_append_paged_kv_cache(
    q_rope,
    k_rope,
    q_nope,
    k_nope,
    v,
    cos_sin_cache,
    pos_ids,
    paged_kv_cache,
    kv_indices,
    kv_indptr,
    batch_indices,
    positions,
    is_neox=True,
    quantize_dtype=None,
    quant_scale_q=1.0,
    quant_scale_kv=1.0,
    page_size=16,
    kv_layout="NHD",
    q_rope_out=None,
    q_nope_out=None,
    enable_pdl=False,
    *,
    target=None,
):
    """Turns the rotary part of queries and keys, converts all to FP8, and appends keys and values to a cache.

    Takes the arguments of `flashinfer.rope.rope_quantize_fp8_append_paged_kv_cache`. Keys without heads are of MLA.
    A token whose batch index, position or page does not exist, negative ones among them, goes nowhere; its queries are
    written like any other's.

    Args:
        q_rope: Columns of queries that are turned, [tokens, heads, rotary_dim], f16 or bf16.
        k_rope: Those of keys, [tokens, kv_heads, rotary_dim], or [tokens, rotary_dim] for MLA.
        q_nope: The other columns of queries, [tokens, heads, columns], or None.
        k_nope: Those of keys, as k_rope, or None.
        v: Values, [tokens, kv_heads, head_dim]; None for MLA.
        cos_sin_cache: f32 [positions, rotary_dim]: for each position rotary_dim / 2 cosines, then as many sines.
        pos_ids: Row of that cache for each token, i32 or i64 [tokens].
        paged_kv_cache: (k_cache, v_cache), each [pages, page_size, kv_heads, head_dim], or for layout HND [pages,
            kv_heads, page_size, head_dim]; for MLA (ckv_cache, kpe_cache), [pages, page_size, columns], the first for
            k_nope, the second for k_rope. In k_cache the turned columns come first.
        kv_indices: Pages of all requests.
        kv_indptr: Where those of each request begin, [requests + 1].
        batch_indices: Request of each token.
        positions: Position of each token in its request.
        is_neox: Whether pairs are columns (i, i + rotary_dim / 2); otherwise (2i, 2i + 1).
        quantize_dtype: The element type of the caches, e4m3 or e5m2; None: whatever they have.
        quant_scale_q: What queries are multiplied by.
        quant_scale_kv: What keys and values are multiplied by.
        page_size: Tokens of a page; what the caches have.
        kv_layout: "NHD" or "HND".
        q_rope_out: Where the turned columns of queries go; allocated if it is not given.
        q_nope_out: Where the others go; allocated if it is not given.
        enable_pdl: Accepted and ignored: launches are not chained to the kernel before.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        (q_rope_out, q_nope_out); without q_nope the second has no columns. From JAX, whose arrays do not change, also
        what the caches hold afterwards: turned keys, other keys, values, as [pages, page_size, kv_heads, columns].
    """
    first, second = paged_kv_cache
    quant = dtype(first)
    if quantize_dtype is not None and name(quantize_dtype) != quant:
        raise ValueError(f"expected caches of {name(quantize_dtype)}, as quantize_dtype says, got {quant}")
    if q_nope is None:
        q_nope = empty(q_rope, (*q_rope.shape[:-1], 0))
    if k_nope is None:
        k_nope = empty(k_rope, (*k_rope.shape[:-1], 0))
    if q_nope_out is None:
        q_nope_out = empty(q_nope, q_nope.shape, quant)
    if len(k_rope.shape) == 2:
        if v is not None:
            raise ValueError("expected no v: the values of MLA are its compressed keys")
        k_rope, k_nope = k_rope[:, None], k_nope[:, None]
        caches = {"k_nope_cache": first[:, :, None], "v_cache": None}
        k_rope_cache = second[:, :, None]
    else:
        if v is None:
            raise ValueError("expected v: keys that have heads have values")
        if kv_layout not in ("NHD", "HND"):
            raise ValueError(f'expected kv_layout "NHD" or "HND", got {kv_layout!r}')
        if kv_layout == "HND":
            first, second = (permute(x, (0, 2, 1, 3)) for x in (first, second))
        k_rope_cache, k_nope_cache = split(first, (k_rope.shape[-1], k_nope.shape[-1]))
        caches = {"k_nope_cache": k_nope_cache, "v_cache": second}
    if k_rope_cache.shape[1] != page_size:
        raise ValueError(f"expected pages of {page_size} tokens, as page_size says, got {k_rope_cache.shape[1]}")
    return rope_quantize_append(
        k_rope_cache,
        q_rope,
        k_rope,
        pos_ids,
        cos_sin_cache,
        *(cast(x, "i32") for x in (batch_indices, positions, kv_indices, kv_indptr)),
        **caches,
        q_nope=q_nope,
        k_nope=k_nope,
        v=v,
        interleave=not is_neox,
        quant_scale_q=quant_scale_q,
        quant_scale_kv=quant_scale_kv,
        q_rope_out=q_rope_out,
        q_nope_out=q_nope_out,
        target=target,
    )
