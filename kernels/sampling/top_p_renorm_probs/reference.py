"""Reference of top_p_renorm_probs in float64."""

import torch


@torch.no_grad()
def run(probs, top_ps=None, top_p=1.0):
    x = probs.double()
    bad = (x.isnan() | x.isposinf()).any(dim=-1, keepdim=True)
    x = torch.where(x > 0, x, 0.0)
    ordered, order = torch.sort(x, dim=-1, descending=True, stable=True)
    upto = ordered.cumsum(dim=-1)
    p = torch.as_tensor(top_p if top_ps is None else top_ps[:, None], device=x.device).float().double()
    # What comes before is less than the share; the first is kept anyway.
    kept = ~((upto - ordered) >= p * upto[:, -1:]) | (p >= 1)
    kept[:, 0] = True
    kept = torch.zeros_like(x).scatter_(1, order, torch.where(kept, ordered, 0.0))
    total = kept.sum(dim=-1, keepdim=True)
    out = torch.where(total > 0, kept / total, 0.0)
    return torch.where(bad, torch.nan, out).to(probs.dtype)
