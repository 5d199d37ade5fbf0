"""Reference of moe_finalize in float64."""

import torch


@torch.no_grad()
def run(x, places, weights):
    if x.shape[0] == 0:
        return x.new_zeros(places.shape[0], x.shape[1])
    rows = x.double()[places.clamp(min=0).long()]
    there = (places >= 0)[..., None]
    terms = torch.where(there, rows * weights.double()[..., None], 0.0)
    return terms.sum(dim=1).to(x.dtype)
