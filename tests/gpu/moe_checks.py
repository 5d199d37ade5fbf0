"""The checks of mixtures of experts."""

import torch
from moe_setup import BF16, Experts, Where, randn, routed

CHECKS = {}


def check(body):
    CHECKS[body.__name__] = lambda name: {"detail": body()}
    return body


def small(n, host):
    return host if Where.host else n


@check
def routes():
    import parbake

    cases = 0
    for tokens in (1, 19, small(989, 40)):
        for experts, k in ((8, 2), (60, 4), (128, 8), (256, 8), (257, 32), (512, 10), (1025, 8), (4096, 4)):
            for scoring in ("softmax", "sigmoid", "softmax_after_topk"):
                x = randn(tokens, experts)
                weights, ids = parbake.fused_moe.topk_routing(x, k, scoring, **Where.target)
                want = x.double().topk(k)
                assert torch.equal(ids.long(), want.indices), (tokens, experts, k, scoring)
                values = want.values.sigmoid() if scoring == "sigmoid" else want.values.softmax(-1)
                values = values / values.sum(-1, keepdim=True)
                assert torch.allclose(weights.double(), values, 1e-5, 1e-7), (tokens, experts, k, scoring)
                cases += 1
    return f"{cases} cases"


@check
def routes_within_groups():
    import parbake

    x, bias = randn(small(4096, 64), 256), randn(256) / 8
    weights, ids = parbake.fused_topk_deepseek(x, bias, 8, 4, 8, 2.5, **Where.target)
    scores = x.sigmoid()
    by = scores.double() + bias.double()
    groups = by.view(-1, 8, 32).topk(2).values.sum(-1).topk(4).indices
    kept = torch.zeros(len(x), 8, dtype=torch.bool, device=x.device).scatter_(1, groups, True)
    want = by.masked_fill(~kept.repeat_interleave(32, 1), -torch.inf).topk(8).indices
    # A few in thousands fall on the other side of a rounding.
    same = (ids.long() == want).all(-1)
    assert same.float().mean() > 0.998, same.float().mean()
    of = scores.double().gather(1, ids.long())
    assert torch.allclose(weights.double(), of / of.sum(-1, keepdim=True) * 2.5, 1e-5, 1e-7)
    return f"{same.float().mean().item():.4%} of tokens as in float64"


@check
def choices_sorted():
    import parbake

    cases = 0
    for tokens, k, experts in ((1, 8, 128), (64, 8, 128), (700, 2, 1025), (small(32768, 600), 8, 128), (small(9000, 60), 8, 256)):
        for tile in (1, 16, 64, 128):
            choices = tokens * k
            capacity = (choices + min(choices, experts) * (tile - 1)) // tile * tile
            ids = torch.randint(-1, experts + 3, (tokens, k), dtype=torch.int32, device=Where.device)
            rows, owners, indptr, places = parbake.moe_align(
                ids, tile, 1, tile_experts=True, experts=experts, capacity=capacity, tiles=capacity // tile, **Where.target
            )
            flat, there = ids.flatten().long() - 1, places.flatten() >= 0
            assert torch.equal(there, (flat >= 0) & (flat < experts)), (tokens, k, experts, tile)
            counts = torch.bincount(flat[there], minlength=experts)
            want = torch.cat([counts.new_zeros(1), ((counts + tile - 1) // tile * tile).cumsum(0)])
            assert torch.equal(indptr.long(), want), (tokens, k, experts, tile)
            order = flat.masked_fill(~there, experts).sort(stable=True).indices[: int(there.sum())]
            at = places.flatten()[order].long()
            assert torch.equal(rows[at].long(), order // k) and int((rows >= 0).sum()) == len(order)
            within = torch.arange(len(order), device=at.device) - (counts.cumsum(0) - counts)[flat[order]]
            assert torch.equal(at, want[flat[order]] + within), (tokens, k, experts, tile)
            assert torch.equal(owners[at // tile].long(), flat[order]) and (owners[int(want[-1]) // tile :] == -1).all()
            cases += 1
    return f"{cases} cases"


def layers(narrow):
    worst = cases = 0
    shapes = [(1, 8, 2, 512, 256), (7, 16, 4, 272, 136), (64, 32, 8, 512, 264), (300, 4, 2, 256, 128), (2000, 8, 2, 512, 384)]
    for tokens, experts, k, hidden, inner in shapes[: small(5, 2)]:
        inner = -(-inner // 128) * 128 if narrow else inner
        layer = Experts(experts, hidden, inner, narrow)
        x = randn(tokens, hidden, dtype=BF16)
        for zipf in (False, True):
            weights, ids = routed(tokens, experts, k, zipf)
            if zipf:
                # One expert for all, twice in a row; one that nobody has; ids of no expert.
                ids[: tokens // 2, :2] = 1
                ids[tokens // 2 :, 0] = -1
                ids[ids == 2] = experts + 5
            out = layer.run(x, ids, weights)
            worst = max(worst, layer.near(out, layer.reference(x, ids, weights)))
            assert torch.equal(out, layer.run(x, ids, weights)), "other bits"
            cases += 1
    return f"{cases} cases, at worst {worst:.2e}"


@check
def layers_of_16_bits():
    return layers(False)


@check
def layers_of_8_bits():
    return layers(True)


@check
def many_rows():
    """More than 65535 choices, one expert with all of them, and none."""
    tokens = small(40000, 50)
    layer = Experts(4, 256, 128)
    x, ids = randn(tokens, 256, dtype=BF16), torch.full((tokens, 2), 3, dtype=torch.int32, device=Where.device)
    weights = torch.rand(tokens, 2, device=Where.device)
    worst = layer.near(layer.run(x, ids, weights), layer.reference(x, ids, weights))
    assert (layer.run(x, ids + 1, weights) == 0).all()
    return f"{tokens} tokens, at worst {worst:.2e}"


@check
def ranks():
    """Sums over ranks are the whole; what is not a number stays where it is."""
    layer = Experts(8, 256, 128)
    x, (weights, ids) = randn(33, 256, dtype=BF16), routed(33, 24, 4)
    ids[3], weights[3], x[3] = -1, torch.nan, torch.nan
    total = torch.zeros(33, 256, dtype=torch.float64, device=x.device)
    for rank in range(3):
        out = layer.run(x, ids, weights, ranks=3, rank=rank)
        clean = weights.nan_to_num()
        layer.near(out, layer.reference(x.nan_to_num(), ids, clean, 8 * rank))
        total += out.double()
    assert (total[3] == 0).all()
    return "3 ranks"


@check
def graphs_take_other_routes():
    if Where.host:
        return "needs a GPU"
    layer = Experts(64, 512, 256)
    x, (weights, ids) = randn(64, 512, dtype=BF16), routed(64, 64, 4)
    layer.run(x, ids, weights)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer.run(x, ids, weights)
    for replay in range(1000):
        ids.copy_(torch.randint(-1, 65, ids.shape))
        x.copy_(torch.randn(x.shape, device=x.device))
        graph.replay()
        if replay % 50 == 0:
            layer.near(out, layer.reference(x, ids, weights))
        else:
            assert torch.equal(out, layer.run(x, ids, weights))
    return "1000 replays"
