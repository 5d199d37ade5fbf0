"""Reference of all_reduce in float64, for a group of one: returns out and, for the pool, nothing."""

import torch


@torch.no_grad()
def run(pool, x, pools, rank=0, timeout_ms=30000):
    return x.double().to(x.dtype), None
