"""Reference of batch_attention in float64."""

import math

import torch


def turn(x, positions, theta, scale):
    """Pairs (i, i + half) of x [tokens, heads, size] turned by position * theta^(-2i/size) / scale, in f32."""
    half = x.shape[-1] // 2
    frequency = (theta ** (-torch.arange(half, dtype=torch.float64) / half) / scale).float()
    angle = (positions.float()[:, None] * frequency).double()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


@torch.no_grad()
def run(
    plan,
    partial,
    q,
    k,
    v,
    kv_indptr,
    qo_indptr,
    kv_indices,
    kv_last_page_len,
    sinks,
    mask,
    mask_indptr,
    alibi_slopes,
    sm_scale,
    v_scale,
    score,
    logits_soft_cap,
    rope_theta,
    rope_scale,
    causal,
    window_left,
    rows,
    processors,
):
    tokens, qo_heads, qk_dim = q.shape
    batch, page_size, group = len(kv_indptr) - 1, k.shape[1], qo_heads // k.shape[2]
    scale = sm_scale or 1 / math.sqrt(qk_dim)
    o = torch.zeros(tokens, qo_heads, v.shape[3], dtype=torch.float64)
    lse = torch.full((tokens, qo_heads), -math.inf, dtype=torch.float64)
    for request in range(batch):
        pages = torch.arange(int(kv_indptr[request]), int(kv_indptr[request + 1]))
        pages = pages if kv_indices is None else kv_indices[pages].long()
        last = page_size if kv_last_page_len is None else int(kv_last_page_len[request])
        kv_len = (len(pages) - 1) * page_size + last if len(pages) else 0
        begin = request * (tokens // batch) if qo_indptr is None else int(qo_indptr[request])
        end = begin + tokens // batch if qo_indptr is None else int(qo_indptr[request + 1])
        keys = k[pages].flatten(0, 1)[:kv_len].double().repeat_interleave(group, 1)
        values = v[pages].flatten(0, 1)[:kv_len].double().repeat_interleave(group, 1)
        own = (torch.arange(end - begin) + kv_len - (end - begin))[:, None]
        j = torch.arange(kv_len)[None, :]
        queries = q[begin:end].double()
        if rope_theta:
            queries, keys = (turn(x, at, rope_theta, rope_scale) for x, at in ((queries, own[:, 0]), (keys, j[0])))
        scores = torch.einsum("ihd,jhd->hij", queries, keys) * scale
        if logits_soft_cap:
            scores = logits_soft_cap * torch.tanh(scores / logits_soft_cap)
        if alibi_slopes is not None:
            scores = scores + alibi_slopes.double()[:, None, None] * (j - own)
        hidden = torch.zeros(end - begin, kv_len, dtype=torch.bool)
        if causal:
            hidden |= j > own
        if window_left >= 0:
            hidden |= j < own - window_left
        if mask is not None:
            bits = torch.arange((end - begin) * kv_len)
            found = mask[int(mask_indptr[request]) + bits // 8].long() >> (bits % 8) & 1
            hidden |= found.reshape(end - begin, kv_len) == 0
        scores = scores.masked_fill(hidden, -math.inf)
        if sinks is not None:
            sink = sinks.double()[:, None, None].expand(-1, end - begin, 1)
            scores = torch.cat((scores, sink), 2)
        sums = torch.logsumexp(scores, 2)
        weights = torch.exp(scores - sums.masked_fill(sums == -math.inf, 0.0)[..., None])[..., :kv_len]
        o[begin:end] = torch.einsum("hij,jhd->ihd", weights, values) * v_scale
        lse[begin:end] = sums.T / math.log(2)
    return o.to(q.dtype), lse.float(), plan, partial
