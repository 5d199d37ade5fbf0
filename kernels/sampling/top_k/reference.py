"""Reference of top_k."""

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
def run(input, sorted=False, tie_break=0, k=None):
    order = ranked(input, tie_break == 2)[:, :k]
    if not sorted:
        order = order.sort(dim=-1).values
    beyond = (0, k - order.shape[1])
    values = torch.nn.functional.pad(input.gather(1, order), beyond, value=-torch.inf)
    return values, torch.nn.functional.pad(order, beyond, value=-1)
