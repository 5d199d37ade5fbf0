"""The peers' shapes. Each check gives a line, or raises what is wrong."""

import itertools
import math
import traceback

import dense
import torch
from attention_setup import BF16, F16, Where, Worst, indptr, make, name, pages, plain, randn, workspace

import parbake

# Queries and keys of FlashAttention 3's tests: of varlen, and of a cache.
PAIRS = [
    (1, 1), (1, 3), (2, 1), (511, 1), (3, 513), (64, 128), (113, 203), (128, 217), (113, 211), (108, 256), (256, 512),
    (307, 256), (640, 128), (512, 256), (1024, 1023), (1023, 1024), (4224, 4224),
]  # fmt: skip
CACHE = [(1, 128), (1, 339), (3, 1024), (64, 800), (3, 799), (64, 2048), (16, 20000), (256, 512), (2048, 3577)]
DIMS = [(64, 64), (128, 128), (192, 128), (256, 256)]
CHECKS = {}


def check(body):
    CHECKS[body.__name__.replace("_", " ")] = body


def little(shapes, of=lambda s: s[0] * s[1], most=40_000, count=6):
    """On a CPU a few of them, and small ones."""
    return [s for s in shapes if of(s) <= most][:count] if Where.host else shapes


def gpu(on_gpu, on_host):
    return on_host if Where.host else on_gpu


def run(only, done, flashinfer):
    import attention_bugs  # noqa: F401

    for title, body in CHECKS.items():
        if only not in title or title in done:
            continue
        Where.say(begin=title)
        try:
            detail, ok = body(), True
        except NotImplementedError as error:
            detail, ok = str(error).splitlines()[-1].strip(), None
        except Exception as error:
            traceback.print_exc()
            detail, ok = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", False
        if not Where.host:
            torch.cuda.empty_cache()
        Where.say(end=title, ok=ok, detail=str(detail))


def ragged(worst, pairs, heads, kv_heads, dims, dtype, causal, window=-1, rule=False, views=False):
    """All pairs as one batch, and its workspace dirty."""
    qo_lens, kv_lens = [p[0] for p in pairs], [p[1] for p in pairs]
    what = f"ragged {pairs if len(pairs) < 4 else f'{len(pairs)} pairs'} {heads}/{kv_heads} {dims} {dtype} causal {causal} window {window}"
    name(what)
    q = randn(sum(qo_lens), heads, dims[0], dtype=dtype)
    k, v = randn(sum(kv_lens), kv_heads, dims[0], dtype=dtype), randn(sum(kv_lens), kv_heads, dims[1], dtype=dtype)
    wrapper = parbake.BatchPrefillWithRaggedKVCacheWrapper(workspace(dims[1]), **Where.target)
    wrapper.plan(indptr(qo_lens), indptr(kv_lens), heads, kv_heads, *dims, causal=causal, window_left=window)
    out = torch.full((len(q), heads, dims[1]), math.nan, dtype=dtype, device=Where.device)
    o, lse = wrapper.run(q, k, v, out=out, return_lse=True)
    parts = zip(pairs, *(x.split(qo_lens) for x in (q, o, lse)), *(x.split(kv_lens) for x in (k, v)))
    for pair, q1, o1, lse1, k1, v1 in parts:
        want = dense.attention(q1, k1, v1, causal=causal, window=window)
        worst.see(f"{what}: {pair}", o1, lse1, want)
        if rule:
            worst.rule_of_two(f"{what}: {pair}", o1, want, plain(q1, k1, v1, causal, window))


def paged(worst, qo_lens, kv_lens, page_size, heads, kv_heads, dims, dtype, layout="NHD", pair=True, **how):
    """Requests over pages in any order, NaN where no token lies."""
    what = f"pages of {page_size} q {qo_lens[:4]} kv {kv_lens[:4]} x{len(kv_lens)} {heads}/{kv_heads} {dims} {dtype} {layout} {how}"
    name(what)
    cache = pages(kv_lens, page_size, kv_heads, dims, dtype, make=make)
    q = randn(sum(qo_lens), heads, dims[0], dtype=dtype)
    plan = {k: v for k, v in how.items() if k in ("causal", "window_left")}
    # The wrapper of decode knows one size of heads.
    if all(n == 1 for n in qo_lens) and dims[0] == dims[1]:
        wrapper = parbake.BatchDecodeWithPagedKVCacheWrapper(workspace(dims[1]), layout, **Where.target)
        plan.pop("causal", None)
        wrapper.plan(*cache.batch, heads, kv_heads, dims[0], page_size, **plan)
    else:
        wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(workspace(dims[1]), layout, **Where.target)
        wrapper.plan(indptr(qo_lens), *cache.batch, heads, kv_heads, dims[0], page_size, dims[1], **plan)
    sinks = how.get("sinks")
    o, lse = wrapper.run(q, cache.cache(layout, pair), sinks=sinks, return_lse=True)
    reference = {"causal": how.get("causal", False), "window": how.get("window_left", -1), "sinks": sinks}
    parts = zip(*(x.split(qo_lens) for x in (q, o, lse)), *(x.split(kv_lens) for x in (cache.k, cache.v)))
    for i, (q1, o1, lse1, k1, v1) in enumerate(parts):
        # Of very many requests some.
        if len(kv_lens) <= 512 or i % (len(kv_lens) // 256) == 0:
            worst.see(f"{what}: request {i}", o1, lse1, dense.attention(q1, k1, v1, **reference))



@check
def varlen_pairs_of_fa3():
    worst = Worst()
    for dims, dtype, causal in itertools.product(gpu(DIMS, DIMS[:2]), (BF16, F16), (False, True)):
        heads, kv_heads = ((6, 6), (6, 2), (6, 1))[(dims[0] + causal) % 3]
        ragged(worst, little(PAIRS), heads, kv_heads, dims, dtype, causal, rule=True)
    for window in (0, 64, 127):
        ragged(worst, little(PAIRS), 6, 2, (128, 128), BF16, True, window)
    return worst


@check
def pairs_one_by_one():
    worst = Worst()
    for i, (n, m) in enumerate(little(PAIRS)):
        causal, dtype, dims = i % 2 == 0, (BF16, F16)[i // 2 % 2], gpu(DIMS, DIMS[:1])[i % gpu(4, 1)]
        name(f"single {n}x{m} {dims} {dtype} causal {causal}")
        q, k, v = randn(n, 8, dims[0], dtype=dtype), randn(m, 2, dims[0], dtype=dtype), randn(m, 2, dims[1], dtype=dtype)
        got = parbake.single_prefill_with_kv_cache(q, k, v, causal=causal, return_lse=True, **Where.target)
        worst.see(f"single {n}x{m} {dims}", *got, dense.attention(q, k, v, causal=causal))
    return worst


@check
def cache_pairs_of_fa3():
    worst = Worst()
    for i, ((n, m), page_size) in enumerate(itertools.product(little(CACHE), (1, 4, 128))):
        dtype, dims = (BF16, F16)[i % 2], gpu(DIMS, DIMS[:1])[i % gpu(4, 1)]
        lens = [m, max(1, m // 3), m - 1]
        paged(worst, [n] * 3, lens, page_size, 6, (1, 2, 6)[i % 3], dims, dtype, ("NHD", "HND")[i % 2], i % 3 > 0, causal=True)
        if i % 3 == 0:
            ragged(worst, [(n, x) for x in lens], 6, 2, dims, dtype, True)
    return worst


@check
def decode_shapes_of_flashinfer():
    worst = Worst()
    lens, sizes, dims = gpu([54, 97, 512, 2048, 16384], [54, 97]), (1, 5, 8, 16, 64, 128), gpu([0, 1, 3], [0])
    for i, (m, page_size) in enumerate(itertools.product(lens, sizes)):
        batch = gpu((4, 12, 17, 128), (4, 3))[i % gpu(4, 2)] if m < 16384 else 4
        kv_heads = (1, 4, 8)[i % 3] if not Where.host else 1
        heads = kv_heads * (1, 2, 4, 8)[i % 4]
        some = [max(1, m - (j * 37) % m) for j in range(batch)]
        paged(worst, [1] * batch, some, page_size, heads, kv_heads, DIMS[dims[i % len(dims)]], (F16, BF16)[i % 2],
              ("NHD", "HND")[i % 2], i % 3 > 0, window_left=(-1, 127, 128)[i // 2 % 3])  # fmt: skip
    return worst


@check
def prefill_shapes_of_flashinfer():
    worst = Worst()
    shapes = list(itertools.product((37, 17, 127, 577), (54, 97, 512, 2048), (1, 5, 16)))
    for i, (n, m, page_size) in enumerate(little(shapes, most=4000)):
        batch, kv_heads = gpu((12, 17, 4)[i % 3], 2), gpu((4, 8, 1)[i % 3], 1)
        dims = DIMS[gpu((0, 1, 3)[i % 3], 0)]
        paged(worst, [n] * batch, [m] * batch, page_size, kv_heads * (1, 4, 8)[i // 3 % 3], kv_heads, dims,
              (F16, BF16)[i % 2], ("NHD", "HND")[i % 2], i % 3 > 0, causal=i % 2 == 0)  # fmt: skip
    for n in gpu((11, 99, 1763, 9999, 32767), (11, 99)):
        name(f"single {n} causal")
        q, k, v = randn(n, 4, 128), randn(n, 1, 128), randn(n, 1, 128)
        got = parbake.single_prefill_with_kv_cache(q, k, v, causal=True, window_left=127, return_lse=True, **Where.target)
        at = torch.randint(0, n, (min(n, 512),), device=Where.device)
        worst.see(f"single {n}", got[0][at], got[1][at], dense.attention(q, k, v, causal=True, window=127, at=at))
    return worst
