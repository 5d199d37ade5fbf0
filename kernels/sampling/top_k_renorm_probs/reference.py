"""Reference of top_k_renorm_probs in float64."""

import torch


@torch.no_grad()
def run(probs, top_ks=None, top_k=2**31 - 1):
    x = probs.double()
    bad = (x.isnan() | x.isposinf()).any(dim=-1, keepdim=True)
    x = torch.where(x > 0, x, 0.0)
    order = torch.sort(x, dim=-1, descending=True, stable=True).indices
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    k = top_k if top_ks is None else top_ks[:, None]
    kept = torch.where(rank < torch.as_tensor(k).clamp(min=1), x, 0.0)
    total = kept.sum(dim=-1, keepdim=True)
    out = torch.where(total > 0, kept / total, 0.0)
    return torch.where(bad, torch.nan, out).to(probs.dtype)
