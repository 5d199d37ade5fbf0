"""Reference of moe_align: rows, tile_experts, indptr and places."""

import torch


@torch.no_grad()
def run(ids, tile=1, first=0, *, experts, capacity, tiles):
    tokens, k = ids.shape
    local = ids.flatten().long().cpu() - first
    rows, owners, indptr = [], [], [0]
    places = torch.full((tokens * k,), -1, dtype=torch.int32)
    for expert in range(experts):
        choices = (local == expert).nonzero().flatten()
        places[choices] = torch.arange(len(rows), len(rows) + len(choices), dtype=torch.int32)
        rows += (choices // k).tolist() + [-1] * (-len(choices) % tile)
        indptr.append(len(rows))
        owners += [expert] * (len(rows) // tile - len(owners))
    rows += [-1] * (capacity - len(rows))
    owners += [-1] * (tiles - len(owners))
    made = [torch.tensor(x, dtype=torch.int32, device=ids.device) for x in (rows, owners, indptr)]
    return (*made, places.view(tokens, k).to(ids.device))
