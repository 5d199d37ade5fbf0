"""Reference of top_k_ragged_transform."""

import torch


def ranked(x, late):
    """Indices, the greatest element first: NaN before everything, of equal ones the first, or the last if `late`."""
    x = x.double() + 0.0
    x = torch.where(x.isnan(), torch.inf, x), x.isnan().int()
    if late:
        x = [v.flip(-1) for v in x]
    order = torch.sort(x[0], dim=-1, descending=True, stable=True).indices
    order = order.gather(-1, torch.sort(x[1].gather(-1, order), dim=-1, descending=True, stable=True).indices)
    return order.shape[-1] - 1 - order if late else order


@torch.no_grad()
def run(input, offsets, lengths, tie_break=0, k=None):
    out = torch.full((input.shape[0], k), -1, dtype=torch.int32, device=input.device)
    for row, length in enumerate(lengths.tolist()):
        taken = ranked(input[row, : max(0, length)], tie_break == 2)[:k].sort().values
        out[row, : len(taken)] = taken + offsets[row]
    return out
