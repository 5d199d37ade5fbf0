"""Reference of concat_mla_k."""

import torch


@torch.no_grad()
def run(k_nope, k_rope):
    return torch.cat([k_nope, k_rope.expand(-1, k_nope.shape[1], -1)], dim=-1)
