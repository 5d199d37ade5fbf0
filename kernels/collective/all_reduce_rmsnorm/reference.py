"""Reference of all_reduce_rmsnorm in float64, for a group of one: returns residual_out, out, quant and, for the pool, nothing.

The sum is an f32 sum, rounded once to the tensors' type; the norm takes it before that rounding.
"""

import torch


@torch.no_grad()
def run(
    pool, x, residual, weight, scale=None, pools=None, rank=0, timeout_ms=30000, eps=1e-6, weight_bias=0.0, scale_value=1.0
):
    s = x.float() + residual.float()
    v = s.double()
    y = v * torch.rsqrt(v.square().mean(dim=-1, keepdim=True) + eps) * (weight.double() + weight_bias)
    quant = (y / (scale_value if scale is None else scale.double())).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return s.to(x.dtype), y.to(x.dtype), quant, None
