"""Mixtures of experts: routing and whole layers against float64, ranks, graphs of routes, what is refused."""

from harness import Setup, check


def setup():
    import torch

    import parbake

    torch.manual_seed(5)
    return torch, parbake, ({"target": "host"} if Setup.device == "cpu" else {})


def near(torch, got, want, bound):
    """Each row to a share of its norm, and zero where it is zero."""
    off, size = (got.double() - want).norm(dim=-1), want.norm(dim=-1)
    assert got.shape == want.shape and not got.isnan().any(), got
    worst = (off - bound * size).max().item() if got.numel() else 0.0
    assert worst <= 1e-6, worst


@check("tvm_ffi", "torch")
def routes():
    torch, parbake, where = setup()
    from parbake.fused_moe import topk_routing

    x = torch.randn(37, 128, device=Setup.device)
    p = x.double().softmax(-1)
    weights, ids = topk_routing(x, 8, renormalize=False, **where)
    want = p.topk(8)
    assert torch.equal(ids.long(), want.indices) and torch.allclose(weights.double(), want.values, 1e-5, 1e-7)
    weights, ids = topk_routing(x, 8, **where)
    assert torch.allclose(weights.double(), want.values / want.values.sum(-1, keepdim=True), 1e-5, 1e-7)
    weights, again = topk_routing(x, 8, "softmax_after_topk", **where)
    assert torch.equal(again, ids)
    assert torch.allclose(weights.double(), x.double().topk(8).values.softmax(-1), 1e-5, 1e-7)


@check("tvm_ffi", "torch")
def routes_as_deepseek_has_them():
    torch, parbake, where = setup()

    x = torch.randn(29, 256, device=Setup.device)
    bias = torch.randn(256, device=Setup.device) / 10
    weights = torch.empty(29, 8, device=Setup.device)
    ids = torch.empty(29, 8, dtype=torch.int32, device=Setup.device)
    parbake.fused_moe.fused_topk_deepseek(x, bias, 8, 4, 8, 2.5, weights, ids, **where)
    scores = x.double().sigmoid()
    by = scores + bias.double()
    groups = by.view(29, 8, 32).topk(2).values.sum(-1).topk(4).indices
    kept = torch.zeros(29, 8, dtype=torch.bool, device=x.device).scatter_(1, groups, True)
    want = by.masked_fill(~kept.repeat_interleave(32, 1), -torch.inf).topk(8).indices
    assert torch.equal(ids.long(), want)
    of = scores.gather(1, want)
    assert torch.allclose(weights.double(), of / (of.sum(-1, keepdim=True) + 1e-20) * 2.5, 1e-5, 1e-7)


@check("tvm_ffi", "torch")
def strange_logits():
    """NaN: experts that exist, weights that are NaN. -inf everywhere, and sigmoids that underflow: weights of 0."""
    torch, parbake, where = setup()
    x = torch.randn(4, 60, device=Setup.device)
    x[0, 7], x[1] = torch.nan, torch.nan
    x[2], x[3] = -torch.inf, -300.0
    for scoring in ("softmax", "sigmoid", "softmax_after_topk"):
        weights, ids = parbake.fused_moe.topk_routing(x, 6, scoring, **where)
        assert weights[:2].isnan().all() and not weights[2:].isnan().any(), (scoring, weights)
        assert 7 not in ids[0] and ids[1].tolist() == list(range(6)) and ids[2].tolist() == list(range(6))
        assert ((ids >= 0) & (ids < 60)).all() and all(len(set(row)) == 6 for row in ids.tolist())


def rounded(torch, x):
    """As 8 bits with a factor for each group of 128."""
    groups = torch.nn.functional.pad(x, (0, -x.shape[1] % 128)).unflatten(1, (-1, 128))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-10).float() / 448
    # Times the reciprocal, as parbake/scale.cuh has it: many numbers of 16 bits are half way between two of 8 bits.
    return ((groups.float() * (1 / scale)).to(torch.float8_e4m3fn).double() * scale.double()).flatten(1)[:, : x.shape[1]]


def layer(torch, x, ids, weights, w1, w2, b1=None, b2=None, activation="silu", narrow=False):
    """In float64, expert by expert; `narrow`: of rows that are quantised before both products."""
    x = rounded(torch, x.double()) if narrow else x.double()
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    inner = w2.shape[2]
    for e in range(w1.shape[0]):
        token, slot = (ids == e).nonzero(as_tuple=True)
        both = x[token] @ w1[e].double().T + (0 if b1 is None else b1[e].double())
        gate, up = both[:, :inner], both[:, inner:]
        if activation == "silu":
            h = torch.nn.functional.silu(gate) * up
        else:
            gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
            h = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        h = rounded(torch, h) if narrow else h
        y = h @ w2[e].double().T + (0 if b2 is None else b2[e].double())
        out.index_add_(0, token, y * weights[token, slot].double()[:, None])
    return out


def problem(torch, tokens, experts, k, hidden, inner, dtype, skewed=False):
    """Rows of unit size all along; with `skewed` most tokens go to one expert and some to none."""
    device = Setup.device
    x = torch.randn(tokens, hidden, device=device).to(dtype)
    w1 = (torch.randn(experts, 2 * inner, hidden, device=device) / hidden**0.5).to(dtype)
    w2 = (torch.randn(experts, hidden, inner, device=device) / inner**0.5).to(dtype)
    logits = torch.randn(tokens, experts, device=device)
    if skewed:
        logits[:, 1] += 5
        logits[:, 2] = -torch.inf
    weights, ids = logits.softmax(-1).topk(k)
    return x, ids.int(), weights, w1, w2


@check("tvm_ffi", "torch")
def layers_of_16_bits():
    torch, parbake, where = setup()
    run = parbake.fused_moe.fused_experts
    for tokens, experts, k, hidden, inner, dtype in [
        (1, 8, 2, 136, 40, torch.bfloat16), (33, 5, 2, 64, 72, torch.float16), (150, 4, 3, 72, 136, torch.bfloat16),
        (0, 4, 2, 64, 64, torch.bfloat16),
    ]:  # fmt: skip
        x, ids, weights, w1, w2 = problem(torch, tokens, experts, k, hidden, inner, dtype, tokens == 33)
        out = run(x, ids, weights, w1, w2, **where)
        near(torch, out, layer(torch, x, ids, weights, w1, w2), 1e-2 if dtype == torch.bfloat16 else 2e-3)
        assert torch.equal(out, run(x, ids.long(), weights, w1, w2, **where))
    # As gpt-oss has it.
    b1, b2 = torch.randn(4, 272, device=x.device).bfloat16(), torch.randn(4, 72, device=x.device).bfloat16()
    x, ids, weights, w1, w2 = problem(torch, 20, 4, 3, 72, 136, torch.bfloat16)
    out = run(x, ids, weights, w1 * 4, w2, None, b1, b2, activation="swiglu_clamped", **where)
    near(torch, out, layer(torch, x, ids, weights, w1 * 4, w2, b1, b2, "clamped"), 1e-2)


def quantised(torch, w):
    """Blocks of 128 x 128, and what they stand for."""
    experts, n, k = w.shape
    padded = torch.nn.functional.pad(w.float(), (0, -k % 128, 0, -n % 128))
    blocks = padded.unflatten(2, (-1, 128)).unflatten(1, (-1, 128))
    scale = blocks.abs().amax((2, 4)) / 448
    q = (blocks / scale[:, :, None, :, None]).to(torch.float8_e4m3fn)
    back = (q.double() * scale.double()[:, :, None, :, None]).flatten(3).flatten(1, 2)
    whole = q.view(torch.uint8).flatten(3).flatten(1, 2)[:, :n, :k].contiguous().view(torch.float8_e4m3fn)
    return whole, scale, back[:, :n, :k]


@check("tvm_ffi", "torch")
def layers_of_8_bits():
    torch, parbake, where = setup()
    for tokens, experts, k, hidden, inner in [(1, 4, 2, 256, 128), (40, 4, 2, 208, 256)]:
        x, ids, weights, w1, w2 = problem(torch, tokens, experts, k, hidden, inner, torch.bfloat16)
        # Blocks that differ in size, so that a factor of another one shows.
        w1 *= (1 + torch.arange(2 * inner, device=w1.device) // 128)[:, None]
        (q1, s1, w1), (q2, s2, w2) = quantised(torch, w1), quantised(torch, w2)
        out = parbake.fused_moe.fused_experts(x, ids, weights, q1, q2, (s1, s2), **where)
        near(torch, out, layer(torch, x, ids, weights, w1, w2, narrow=True), 1e-2)


@check("tvm_ffi", "torch")
def ranks_add_up():
    """Each rank has some experts; ids of others, and -1, add nothing, and neither does what is not a number there."""
    torch, parbake, where = setup()
    run = parbake.fused_moe.fused_experts
    x, ids, weights, w1, w2 = problem(torch, 21, 6, 3, 64, 40, torch.bfloat16)
    ids[4], ids[5, 1] = -1, -1
    x[4], weights[5, 1] = torch.nan, torch.nan
    parts = [
        run(x, ids, weights, w1[2 * r : 2 * r + 2], w2[2 * r : 2 * r + 2], ep_size=3, ep_rank=r, **where) for r in range(3)
    ]
    want = layer(torch, x.nan_to_num(), ids, weights.nan_to_num(), w1, w2)
    near(torch, sum(p.double() for p in parts), want, 1e-2)
    assert all((p[4] == 0).all() for p in parts)
    nothing = run(x, torch.full_like(ids, -1), weights, w1, w2, **where)
    assert (nothing == 0).all()


@check("tvm_ffi", "torch")
def what_is_refused():
    torch, parbake, where = setup()
    run = parbake.fused_moe.fused_experts
    x, ids, weights, w1, w2 = problem(torch, 3, 4, 2, 64, 40, torch.bfloat16)
    for kind, says, call in [
        (ValueError, "fc2_expert_weights: expected [4, 64, 40]", lambda: run(x, ids, weights, w1, w2[:, :, :32], **where)),
        (ValueError, "fc1_expert_weights", lambda: run(x[:, :32], ids, weights, w1, w2, **where)),
        (TypeError, "int32 or int64", lambda: run(x, ids.float(), weights, w1, w2, **where)),
        (ValueError, "[3, k]", lambda: run(x, ids[:2], weights, w1, w2, **where)),
        (ValueError, "ep_rank", lambda: run(x, ids, weights, w1, w2, ep_size=2, ep_rank=2, **where)),
        (ValueError, "activation", lambda: run(x, ids, weights, w1, w2, activation="tanh", **where)),
        (ValueError, "quant_scales", lambda: run(x, ids, weights, w1, w2, (w1, w2), **where)),
        (ValueError, "a multiple of 8", lambda: run(x[:, :60], ids, weights, w1[:, :, :60], w2[:, :60], **where)),
        (ValueError, "scoring", lambda: parbake.fused_moe.topk_routing(x, 2, "max", **where)),
        (ValueError, "k", lambda: parbake.fused_moe.topk_routing(x, 65, **where)),
    ]:
        try:
            call()
        except kind as error:
            assert says in str(error), (says, str(error))
        else:
            raise AssertionError(f"nothing was refused: {says}")


@check("cuda", "torch")
def graphs_take_other_routes():
    torch, parbake, _ = setup()
    x, ids, weights, w1, w2 = problem(torch, 64, 16, 4, 256, 128, torch.bfloat16)
    run = parbake.fused_moe.fused_experts
    run(x, ids, weights, w1, w2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(x, ids, weights, w1, w2)
    for seed in range(20):
        torch.manual_seed(seed)
        ids.copy_(torch.randint(-1, 17, ids.shape))
        x.copy_(torch.randn(x.shape))
        graph.replay()
        near(torch, out, layer(torch, x, ids, weights, w1, w2), 1e-2)
