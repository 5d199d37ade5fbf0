"""Reference of sample in float64: the same random numbers, one row after the other."""

import torch

_MASK = 0xFFFFFFFF


def _uniform(seed, offset, row, draw):
    key = [seed & _MASK, seed >> 32 & _MASK]
    c = [offset & _MASK, offset >> 32 & _MASK, row, draw]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ key[0], b & _MASK, a >> 32 ^ c[3] ^ key[1], a & _MASK]
        key = [key[0] + 0x9E3779B9 & _MASK, key[1] + 0xBB67AE85 & _MASK]
    return (c[0] + 0.5) / 2**32


def _token(weights, k, p, min_p, top_k_first, uniform):
    total = weights.sum()
    if not (total > 0 and total.isfinite()):
        return 0, False
    ordered, order = weights.sort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    before = ordered.cumsum(0) - ordered
    share = ordered[:k].sum() if top_k_first else total
    kept = torch.arange(len(order), device=order.device) < k
    if not p >= 1.0:
        kept &= before < p * share
    floor = (min(min_p, 1.0) * ordered[0]).float().double() if min_p > 0 else torch.tensor(0.0)
    kept &= ordered >= floor
    kept[0] = True
    limit, draw = len(order), 0
    while True:
        masses = torch.where(rank < limit, weights, 0.0).cumsum(0)
        token = int((masses > uniform(draw) * masses[-1]).nonzero()[0])
        if kept[rank[token]]:
            return token, True
        limit = int((ordered >= floor).sum()) if weights[token] < floor else int(rank[token])
        draw += 1


@torch.no_grad()
def run(x, indices=None, top_ks=None, top_ps=None, min_ps=None, seeds=None, offsets=None, logits=0, top_k=2**31 - 1,
        top_p=1.0, min_p=0.0, top_k_first=0, seed=0, offset=0):
    rows = len(x) if indices is None else len(indices)
    tokens = torch.zeros(rows, dtype=torch.int32 if indices is None else indices.dtype, device=x.device)
    valid = torch.zeros(rows, dtype=torch.bool, device=x.device)

    def of(many, one, row):
        return one if many is None else many[row if len(many) > 1 else 0].item()

    for row in range(rows):
        source = row if indices is None else int(indices[row])
        if not 0 <= source < len(x):
            continue
        w = x[source].double()
        if logits:
            w = (w - w.max()).exp()
        w = torch.where(w <= 0, 0.0, w)
        s, o = of(seeds, seed, row), of(offsets, offset, row)
        tokens[row], valid[row] = _token(w, max(of(top_ks, top_k, row), 1), of(top_ps, top_p, row),
                                         of(min_ps, min_p, row), top_k_first,
                                         lambda draw, s=s, o=o, row=row: _uniform(s, o, row, draw))
    return tokens, valid
