"""Reference of rope_quantize_append in float64: returns what the outputs and the caches hold afterwards."""

import torch


def turn(x, cache, positions, interleave):
    rows, rotary_dim = cache.shape
    known = ((positions >= 0) & (positions < rows))[:, None, None]
    cosine, sine = cache.double()[positions.long().clamp(0, rows - 1), None].chunk(2, dim=-1)
    cosine, sine = torch.where(known, cosine, 1.0), torch.where(known, sine, 0.0)
    y = x.double().clone()
    a, b = (slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)) if interleave else (
        slice(0, rotary_dim // 2), slice(rotary_dim // 2, rotary_dim))
    left, right = x.double()[..., a], x.double()[..., b]
    y[..., a], y[..., b] = left * cosine - right * sine, right * cosine + left * sine
    return y


def quantize(x, scale, dtype):
    most = torch.finfo(dtype).max
    return (x.double() * scale).clamp(-most, most).float().to(dtype)


def append(cache, values, batch_indices, positions, kv_indices, kv_indptr):
    cache = cache.clone()
    pages, page_size = cache.shape[:2]
    indices, indptr = kv_indices.tolist(), kv_indptr.tolist()
    for token, (request, position) in enumerate(zip(batch_indices.tolist(), positions.tolist())):
        if request < 0 or request + 1 >= len(indptr) or position < 0:
            continue
        i = indptr[request] + position // page_size
        if i < min(indptr[request + 1], len(indices)) and 0 <= indices[i] < pages:
            cache[indices[i], position % page_size] = values[token]
    return cache


@torch.no_grad()
def run(k_rope_cache, k_nope_cache=None, v_cache=None, q_rope=None, k_rope=None, q_nope=None, k_nope=None, v=None,
        pos_ids=None, cos_sin_cache=None, batch_indices=None, positions=None, kv_indices=None, kv_indptr=None,
        interleave=False, quant_scale_q=1.0, quant_scale_kv=1.0):
    dtype = k_rope_cache.dtype
    q = quantize(turn(q_rope, cos_sin_cache, pos_ids, interleave), quant_scale_q, dtype)
    k = quantize(turn(k_rope, cos_sin_cache, pos_ids, interleave), quant_scale_kv, dtype)
    nope = None if q_nope is None else quantize(q_nope, quant_scale_q, dtype)
    slots = (batch_indices, positions, kv_indices, kv_indptr)
    others = [
        None if x is None else append(cache, quantize(x, quant_scale_kv, dtype), *slots)
        for cache, x in ((k_nope_cache, k_nope), (v_cache, v))
    ]
    return q, nope, append(k_rope_cache, k, *slots), *others
