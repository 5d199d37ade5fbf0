"""Reference of bmm in float64."""

import math

import torch


def spread(scale, rows, k):
    """Factors [batch, rows or groups or 1, blocks or 1] for each element."""
    if scale.shape[1] not in (1, rows):
        scale = scale.repeat_interleave(128, 1)[:, :rows]
    if scale.shape[2] != 1:
        scale = scale.repeat_interleave(128, 2)[:, :, :k]
    return scale.double()


def activate(x, activation):
    if activation in ("silu", 1):
        return x * torch.sigmoid(x)
    if activation in ("gelu", 2):
        return x * torch.special.erfc(-x / math.sqrt(2)) / 2
    if activation in ("gelu_tanh", 3):
        return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return torch.relu(x) if activation in ("relu", 4) else x


@torch.no_grad()
def run(partial, tickets, a, b, bias, a_scale, b_scale, activation, processors, out_dtype=None):
    x, y = a.double(), b.double()
    if a_scale is not None:
        x = x * spread(a_scale, a.shape[1], a.shape[2])
    if b_scale is not None:
        y = y * spread(b_scale, b.shape[1], b.shape[2])
    out = x @ y.mT
    if bias is not None:
        out = out + bias.double()
    return activate(out, activation).to(out_dtype or a.dtype), partial, tickets
