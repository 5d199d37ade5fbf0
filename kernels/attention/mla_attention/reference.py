"""Reference of mla_attention in float64."""

import math

import torch


@torch.no_grad()
def run(
    plan,
    partial,
    q_nope,
    q_pe,
    ckv,
    kpe,
    kv_indptr,
    qo_indptr,
    kv_indices,
    kv_last_page_len,
    sm_scale,
    causal,
    rows,
    processors,
):
    tokens, heads, _ = q_nope.shape
    batch, page_size, scale = len(kv_indptr) - 1, ckv.shape[1], sm_scale or 1 / math.sqrt(192)
    o = torch.zeros(tokens, heads, 512, dtype=torch.float64)
    lse = torch.full((tokens, heads), -math.inf, dtype=torch.float64)
    for request in range(batch):
        pages = torch.arange(int(kv_indptr[request]), int(kv_indptr[request + 1]))
        pages = pages if kv_indices is None else kv_indices[pages].long()
        last = page_size if kv_last_page_len is None else int(kv_last_page_len[request])
        kv_len = (len(pages) - 1) * page_size + last if len(pages) else 0
        begin = request * (tokens // batch) if qo_indptr is None else int(qo_indptr[request])
        end = begin + tokens // batch if qo_indptr is None else int(qo_indptr[request + 1])
        values = ckv[pages].flatten(0, 1)[:kv_len].double()
        keys = torch.cat((values, kpe[pages].flatten(0, 1)[:kv_len].double()), 1)
        queries = torch.cat((q_nope[begin:end], q_pe[begin:end]), 2).double()
        scores = torch.einsum("ihd,jd->hij", queries, keys) * scale
        if causal:
            own = (torch.arange(end - begin) + kv_len - (end - begin))[:, None]
            scores = scores.masked_fill(torch.arange(kv_len)[None, :] > own, -math.inf)
        sums = torch.logsumexp(scores, 2)
        weights = torch.exp(scores - sums.masked_fill(sums == -math.inf, 0.0)[..., None])
        o[begin:end] = torch.einsum("hij,jd->ihd", weights, values)
        lse[begin:end] = sums.T / math.log(2)
    return o.to(q_nope.dtype), lse.float(), plan, partial
