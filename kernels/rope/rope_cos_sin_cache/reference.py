"""Reference of rope_cos_sin_cache in float64."""

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


@torch.no_grad()
def run(q, k, positions, cos_sin_cache, interleave=False):
    return tuple(turn(x, cos_sin_cache, positions, interleave).to(x.dtype) for x in (q, k))
