"""Reference of rmsnorm in float64."""

import torch


@torch.no_grad()
def run(x, weight, eps, weight_bias=0.0):
    v = x.double()
    r = torch.rsqrt(v.square().mean(dim=-1, keepdim=True) + eps)
    return (v * r * (weight.double() + weight_bias)).to(x.dtype)
