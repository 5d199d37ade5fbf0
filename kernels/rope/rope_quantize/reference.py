"""Reference of rope_quantize in float64."""

import torch


def turn(x, cache, positions, interleave):
    rows, rotary_dim = cache.shape
    known = ((positions >= 0) & (positions < rows))[:, None, None]
    cosine, sine = cache.double()[positions.long().clamp(0, rows - 1), None].chunk(2, dim=-1)
    cosine, sine = torch.where(known, cosine, 1.0), torch.where(known, sine, 0.0)
    y = x.double().clone()
    a, b = (slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)) if interleave else (
        slice(0, rotary_dim // 2), slice(rotary_dim // 2, rotary_dim))
    left, right = x.double()[..., a], x.double()[..., b]
    y[..., a], y[..., b] = left * cosine - right * sine, right * cosine + left * sine
    return y


def quantize(x, scale, dtype):
    most = torch.finfo(dtype).max
    return (x.double() * scale).clamp(-most, most).float().to(dtype)


@torch.no_grad()
def run(q_rope, k_rope, q_nope=None, k_nope=None, pos_ids=None, cos_sin_cache=None, interleave=False,
        quant_scale_q=1.0, quant_scale_kv=1.0, dtype=torch.float8_e4m3fn):
    turned = [turn(x, cos_sin_cache, pos_ids, interleave) for x in (q_rope, k_rope)]
    parts = [(turned[0], quant_scale_q), (turned[1], quant_scale_kv), (q_nope, quant_scale_q), (k_nope, quant_scale_kv)]
    return tuple(None if x is None else quantize(x, scale, dtype) for x, scale in parts)
