"""Reference of qk_rmsnorm in float64: returns what q and k hold afterwards."""

import torch


@torch.no_grad()
def run(q, k, q_weight, k_weight, eps=1e-6, weight_bias=0.0):
    def norm(x, weight):
        v = x.double()
        r = torch.rsqrt(v.square().mean(dim=-1, keepdim=True) + eps)
        return (v * r * (weight.double() + weight_bias)).to(x.dtype)

    return norm(q, q_weight), norm(k, k_weight)
