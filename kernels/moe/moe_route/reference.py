"""Reference of moe_route in float64: returns weights and ids."""

import torch


def scores_of(x, scoring):
    if scoring == 0:
        top = x.amax(dim=-1, keepdim=True)
        e = (x - top.masked_fill(top == -torch.inf, 0.0)).exp()
        return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-300)
    return x.sigmoid() if scoring == 1 else x


def best(x, k):
    """The greatest ones, the first of equal ones first."""
    return x.sort(dim=-1, descending=True, stable=True).indices[..., :k]


@torch.no_grad()
def run(logits, bias=None, scoring=0, renormalize=1, groups=1, kept_groups=1, group_best=2, scale=1.0, *, k):
    strange = logits.isnan().any(dim=-1, keepdim=True)
    x = logits.double().masked_fill(logits.isnan(), -torch.inf)
    scores = scores_of(x, scoring)
    by = scores if bias is None else scores + bias.double()
    # Where nothing is added up the logits are in the same order, and never rounded to one number.
    if bias is None and (groups == 1 or group_best == 1):
        by = x
    tokens, experts = x.shape
    taken = torch.zeros_like(x, dtype=torch.bool)
    if groups > 1:
        split = by.view(tokens, groups, -1)
        sums = split.topk(min(group_best, split.shape[-1]), dim=-1).values.sum(dim=-1)
        keep = torch.zeros_like(sums, dtype=torch.bool).scatter_(1, best(sums, kept_groups), True)
        taken = ~keep[:, :, None].expand_as(split).reshape(tokens, experts)
    order = best(by, experts)
    # What may not be chosen goes last, in its order.
    last = taken.gather(1, order).sort(dim=-1, stable=True).indices
    ids = order.gather(1, last)[:, :k]
    weights = scores.gather(1, ids)
    if scoring == 2:
        weights = scores_of(weights, 0)
    elif renormalize:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    weights = (weights * scale).masked_fill(strange, torch.nan)
    return weights.float(), ids.int()
