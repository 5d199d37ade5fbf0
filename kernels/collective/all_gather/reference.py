"""Reference of all_gather, for a group of one: returns out and, for the pool, nothing."""

import torch


@torch.no_grad()
def run(pool, x, pools, rank=0, timeout_ms=30000):
    return x[None].clone(), None
