"""Reference of apply_rope in float64. The contract says that frequency and angle are f32: so they are here."""

import math

import torch


def frequencies(rotary_dim, scale, theta, low, high, old):
    exact = theta ** (-2.0 * torch.arange(rotary_dim // 2, dtype=torch.float64) / rotary_dim)
    if old == 0:
        return (exact / scale).float()
    # Each step is one of f32; a product and a sum are rounded once.
    f32 = lambda x: torch.as_tensor(x, dtype=torch.float64).float().double()
    g, slowest = exact.float().double(), f32(1.0 / scale)
    smooth = f32(g * f32(old / (2 * math.pi * (high - low))) + f32(-low / (high - low))).clamp(0, 1)
    return (g * f32(smooth * f32(1.0 - slowest) + slowest)).float()


def positions(tokens, pos_ids, indptr, offsets):
    if pos_ids is not None:
        return pos_ids.float()
    token = torch.arange(tokens, device=indptr.device)
    segment = torch.searchsorted(indptr.long(), token, right=True) - 1
    inside = (segment >= 0) & (segment < len(offsets))
    segment = segment.clamp(0, max(len(offsets) - 1, 0))
    if len(offsets) == 0:
        return torch.zeros(tokens, device=indptr.device)
    at = offsets.long()[segment] + token - indptr.long()[segment]
    return torch.where(inside, at, 0).float()


def turn(x, angle, rotary_dim, interleave):
    y = x.double().clone()
    a, b = (slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)) if interleave else (
        slice(0, rotary_dim // 2), slice(rotary_dim // 2, rotary_dim))
    cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
    left, right = x.double()[..., a], x.double()[..., b]
    y[..., a], y[..., b] = left * cosine - right * sine, right * cosine + left * sine
    return y.to(x.dtype)


@torch.no_grad()
def run(q, k, pos_ids=None, indptr=None, offsets=None, rotary_dim=0, interleave=False, rope_scale=1.0,
        rope_theta=1e4, low_freq_factor=1.0, high_freq_factor=4.0, old_context_len=0.0):
    rotary_dim = rotary_dim or q.shape[-1]
    inverse = frequencies(rotary_dim, rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    at = positions(q.shape[0], pos_ids, indptr, offsets)
    angle = (at[:, None] * inverse.to(q.device)).double()
    return turn(q, angle, rotary_dim, interleave), turn(k, angle, rotary_dim, interleave)
