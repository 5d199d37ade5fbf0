"""Reference of group_mm in float64."""

import math

import torch


def spread(scale, rows, k):
    """Factors [.., rows or groups or 1, blocks or 1] for each element."""
    if scale.shape[-2] not in (1, rows):
        scale = scale.repeat_interleave(128, -2)[..., :rows, :]
    if scale.shape[-1] != 1:
        scale = scale.repeat_interleave(128, -1)[..., :k]
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
def run(out, a, b, indptr, lengths, ids, rows, weights, bias, a_scale, b_scale, activation, tile_rows, processors):
    m, out = len(out), out.clone()
    if indptr is not None:
        row = torch.arange(m)
        group = torch.full((m,), -1)
        for g in range(len(indptr) - 1):
            group[(row >= indptr[g]) & (row < indptr[g + 1])] = g
    elif lengths is not None:
        most = m // max(len(lengths), 1)
        group = torch.arange(len(lengths)).repeat_interleave(most)
        group[torch.arange(m) % most >= lengths.long()[group]] = -1
    else:
        group = ids.long().clone()
        group[group >= (len(b) if weights is None else len(weights))] = -1
    source = torch.arange(m) if rows is None else rows.long()
    group[(source < 0) | (source >= len(a))] = -1
    x, y = a.double(), b.double()
    if a_scale is not None:
        x = x * spread(a_scale, *a.shape)
    if b_scale is not None:
        y = y * spread(b_scale, *b.shape[1:])
    for g in range(int(group.max()) + 1 if m else 0):
        matrix = g if weights is None else int(weights[g])
        if 0 <= matrix < len(b):
            mine = group == g
            product = x[source[mine]] @ y[matrix].T
            if bias is not None:
                product = product + bias[matrix].double()
            out[mine] = activate(product, activation).to(out.dtype)
    return out
