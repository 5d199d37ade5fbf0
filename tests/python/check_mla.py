"""The wrapper of multi-head latent attention against float64."""

import math

from harness import Setup, check

DEVICE, TARGET = ("cuda", None) if Setup.device == "cuda" else ("cpu", "host")


def batch(qo, kv, heads, page, extra=0, dtype="bfloat16", seed=0):
    """Queries, caches that are views of one tensor, and integers. What is no key is NaN; `extra` pages have no keys."""
    import torch

    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    counts = [-(-n // page) + extra for n in kv]
    q = torch.randn(sum(qo), heads, 576, dtype=torch.float32).to(kind)
    cache = torch.randn(sum(counts) + 1, page, 576, dtype=torch.float32).to(kind)
    indices = torch.randperm(sum(counts))
    at = 0
    for length, count in zip(kv, counts):
        for i in range(count):
            cache[indices[at + i], max(length - i * page, 0) :] = float("nan")
        at += count
    begins = lambda lengths: torch.tensor([0, *lengths]).cumsum(0).int()
    return q.to(DEVICE), cache.to(DEVICE), (begins(qo), begins(counts), indices.int(), torch.tensor(kv).int())


def expected(q, cache, integers, causal, scale):
    """Outputs and logarithms in float64."""
    import torch

    qo, pages, indices, lengths = (i.tolist() for i in integers)
    q, cache = q.double().cpu(), cache.double().cpu()
    o, lse = torch.zeros(*q.shape[:2], 512).double(), torch.full(q.shape[:2], -math.inf).double()
    for b, length in enumerate(lengths):
        keys = cache[indices[pages[b] : pages[b + 1]]].flatten(0, 1)[:length]
        n = qo[b + 1] - qo[b]
        scores = torch.einsum("ihd,jd->ihj", q[qo[b] : qo[b + 1]], keys) * scale
        if causal:
            hidden = torch.arange(length)[None] > torch.arange(n)[:, None] + length - n
            scores = scores.masked_fill(hidden[:, None], -math.inf)
        sums = torch.logsumexp(scores, 2)
        o[qo[b] : qo[b + 1]] = torch.exp(scores - sums.masked_fill(sums == -math.inf, 0)[..., None]) @ keys[:, :512]
        lse[qo[b] : qo[b + 1]] = sums / math.log(2)
    return o, lse


def near(got, o, lse, tolerance):
    """Whole rows: what is wrong with one element drowns in no other."""
    out, sums = (t.double().cpu() for t in got)
    error = (out - o).norm(dim=2) / o.norm(dim=2).clamp_min(1e-30)
    assert error.max() < tolerance, error.max()
    assert ((sums - lse).abs().nan_to_num(0) < 1e-3).all() and (sums.isinf() == lse.isinf()).all()


def wrapper(graph=False, **buffers):
    import torch

    import parbake

    workspace = torch.empty(40 << 20, dtype=torch.uint8, device=DEVICE)
    return parbake.BatchMLAPagedAttentionWrapper(workspace, graph, **buffers, target=TARGET)


def run(mla, q, cache, **more):
    return mla.run(q[..., :512], q[..., 512:], cache[..., :512], cache[..., 512:], return_lse=True, **more)


@check("tvm_ffi", "torch")
def mla_is_right():
    for qo, kv, heads, page, extra, causal, dtype in (
        ([1, 1, 1], [70, 1, 0], 16, 16, 0, False, "bfloat16"),
        ([2, 0, 3], [40, 9, 2], 7, 5, 2, True, "float16"),
        ([1, 2], [200, 130], 64, 64, 0, True, "bfloat16"),
    ):
        q, cache, integers = batch(qo, kv, heads, page, extra, dtype)
        scale = 1 / math.sqrt(192)
        mla = wrapper()
        o, lse = expected(q, cache, integers, causal, scale)
        tolerance = 1e-3 if dtype == "float16" else 5e-3
        for place in ("cpu", DEVICE):
            mla.plan(*(i.to(place) for i in integers), heads, 512, 64, page, causal, scale, q.dtype, cache.dtype)
            near(run(mla, q, cache), o, lse, tolerance)
        _, natural = run(mla, q, cache, return_lse_base_on_e=True)
        assert (natural.cpu().double() - lse * math.log(2)).abs().nan_to_num(0).max() < 1e-3


@check("tvm_ffi", "torch")
def a_plan_that_a_graph_reads_takes_other_batches():
    import torch

    put = lambda n: torch.zeros(n, dtype=torch.int32, device=DEVICE)
    buffers = {"qo_indptr": put(3), "kv_indptr": put(3), "kv_indices": put(32), "kv_len_arr": put(2)}
    mla = wrapper(True, **buffers)
    for qo, kv in (([2, 2], [33, 50]), ([1, 1], [7, 100]), ([0, 3], [16, 4])):
        q, cache, integers = batch(qo, kv, 16, 16, seed=sum(kv))
        mla.plan(*integers, 16, 512, 64, 16, True, 0.1, "bfloat16", "bfloat16")
        # As many queries as the first batch: what is beyond this one stays unread.
        room = torch.zeros(4, *q.shape[1:], dtype=q.dtype, device=DEVICE)
        room[: q.shape[0]] = q
        out, lse = run(mla, room, cache)
        near((out[: q.shape[0]], lse[: q.shape[0]]), *expected(q, cache, integers, True, 0.1), 5e-3)


@check("tvm_ffi", "torch")
def what_does_not_fit_is_refused():
    import torch

    q, cache, integers = batch([1], [5], 4, 16)
    rest = [4, 512, 64, 16, False, 0.1, q.dtype, q.dtype]

    def refused(kind, words, body):
        try:
            body()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"nothing was refused: {words}")

    planned = wrapper()
    planned.plan(*integers, *rest)
    refused(ValueError, "plan: expected to be called before run", lambda: run(wrapper(), q, cache))
    refused(ValueError, "q_nope: expected 1 queries", lambda: run(planned, q.repeat(2, 1, 1), cache))
    refused(ValueError, "q_nope: expected [.., 4, 512]", lambda: run(planned, q[:, :2], cache))
    refused(ValueError, "ckv_cache: expected [.., 16, 512]", lambda: run(planned, q, cache[:, :8]))
    refused(TypeError, "q_nope: expected torch.bfloat16", lambda: run(planned, q.half(), cache.half()))
    refused(NotImplementedError, "ckv_scale", lambda: run(planned, q, cache, ckv_scale=1.0))
    other = lambda i, value: rest[:i] + [value] + rest[i + 1 :]
    refused(NotImplementedError, "head_dim_ckv", lambda: planned.plan(*integers, *other(1, 256)))
    refused(NotImplementedError, "kv_data_type", lambda: planned.plan(*integers, *other(7, torch.float8_e4m3fn)))
    refused(ValueError, "kv_len_arr: expected [1]", lambda: planned.plan(*integers[:3], integers[0], *rest))
    refused(TypeError, "kv_indices: expected int32", lambda: planned.plan(*integers[:2], q, integers[3], *rest))
