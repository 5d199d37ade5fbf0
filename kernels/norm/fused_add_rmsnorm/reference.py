"""Reference of fused_add_rmsnorm: returns what x and residual hold afterwards.

The sum is an f32 sum, rounded once to the tensors' type for the residual; the norm takes the sum before that rounding.
"""

import torch


@torch.no_grad()
def run(x, residual, weight, eps, weight_bias=0.0):
    s = x.float() + residual.float()
    v = s.double()
    r = torch.rsqrt(v.square().mean(dim=-1, keepdim=True) + eps)
    return (v * r * (weight.double() + weight_bias)).to(x.dtype), s.to(residual.dtype)
