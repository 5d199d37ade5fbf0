"""Reference of top_k_mask_logits."""

import torch


def ranked(x):
    """Indices, the greatest element first: NaN before everything, of equal ones the first."""
    x = x.double() + 0.0
    x = torch.where(x.isnan(), torch.inf, x), x.isnan().int()
    order = torch.sort(x[0], dim=-1, descending=True, stable=True).indices
    return order.gather(-1, torch.sort(x[1].gather(-1, order), dim=-1, descending=True, stable=True).indices)


@torch.no_grad()
def run(logits, top_ks=None, top_k=2**31 - 1):
    order = ranked(logits)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    k = top_k if top_ks is None else top_ks[:, None]
    return torch.where(rank < torch.as_tensor(k).clamp(min=1), logits, -torch.inf)
