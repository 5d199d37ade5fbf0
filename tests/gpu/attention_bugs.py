"""Bugs that peers had, each as a check."""

import math

import dense
import torch
from attention_checks import check, gpu, little, paged, ragged
from attention_setup import BF16, F16, Where, Worst, indptr, make, name, pages, randn, workspace

import parbake


@check
def requests_without_queries_or_keys():
    worst = Worst()
    for qo, kv in (([0, 5, 0, 1], [7, 0, 0, 3]), ([0, 0], [0, 0]), ([0], [9]), ([4], [0]), ([], [])):
        paged(worst, qo, kv, 16, 4, 2, (64, 64), F16, causal=True)
        paged(worst, [1] * len(kv), kv, 16, 4, 2, (64, 64), F16)
    return worst


@check
def more_queries_than_keys_and_rows_that_see_nothing():
    worst = Worst()
    for n, m in little([(9, 1), (130, 7), (512, 64), (1000, 999), (4224, 100)]):
        for dtype in (BF16, F16):
            ragged(worst, [(n, m), (m, n)], 4, 2, (64, 64), dtype, True)
            sinks = torch.randn(4, device=Where.device)
            paged(worst, [n, 1], [m, 1], 16, 4, 2, (64, 64), dtype, causal=True, sinks=sinks)
    return worst


@check
def a_window_that_is_short():
    """Bugs: a hang where most of the keys are not seen, in every path (decode, prefill, cut and not)."""
    worst = Worst()
    for window, n, m in ((0, 1, 20000), (127, 1, 100000), (127, 64, 40000), (1, 300, 40000), (128, 4096, 32768)):
        n, m = gpu((n, m), (min(n, 40), min(m, 900)))
        paged(worst, [n] * 3, [m, 5, m // 2], 16, 8, 2, (64, 64), BF16, causal=True, window_left=window)
    return worst


@check
def pages_of_every_size():
    worst = Worst()
    for size in (1, 2, 3, 5, 7, 8, 16, 31, 64, 100, 128, 255, 256):
        for layout in ("NHD", "HND"):
            lens = gpu([1, 777, 4000, 0], [1, 77, 300, 0])
            paged(worst, [1] * 4, lens, size, 8, 2, (128, 128), BF16, layout, size % 2 == 0)
            paged(worst, [3, 20, 1, 2], lens, size, 8, 2, (128, 128), BF16, layout, size % 2 == 0, causal=True)
    return worst


@check
def more_than_2_to_the_31_elements():
    """A pool of which keys and values are one tensor; pages on both sides of 2^31 elements, and at its end."""
    count, size, heads, dim = gpu(140_000, 40), 16, 8, 128
    name(f"[{count}, 2, {size}, {heads}, {dim}]")
    pool = torch.full((count, 2, size, heads, dim), math.nan, dtype=BF16, device=Where.device)
    worst, used = Worst(), [0, count // 2 - 1, count // 2, count - 1, count - 2, 1, count // 4, 3 * count // 4]
    live = torch.tensor(used, device=Where.device)
    pool[live] = randn(len(used), 2, size, heads, dim)
    begins, last = indptr([5, 3]), torch.tensor([size, 7], dtype=torch.int32, device=Where.device)
    wrapper = parbake.BatchDecodeWithPagedKVCacheWrapper(workspace(dim), **Where.target)
    wrapper.plan(begins, live.int(), last, 32, heads, dim, size)
    q = randn(2, 32, dim)
    o, lse = wrapper.run(q, pool, return_lse=True)
    for i, keep in enumerate((5 * size, 2 * size + 7)):
        of = live[:5] if i == 0 else live[5:]
        k, v = (pool[of, plane].flatten(0, 1)[:keep] for plane in (0, 1))
        worst.see(f"request {i}", o[i : i + 1], lse[i : i + 1], dense.attention(q[i : i + 1], k, v))
    return f"{pool.numel():.3g} elements, {worst}"


@check
def a_request_of_millions_of_keys():
    n = gpu(5_000_000, 3000)
    q, k, v = randn(1, 4, 64), make(n, 1, 64, device=Where.device), make(n, 1, 64, device=Where.device)
    worst = Worst()
    name(f"decode {n}")
    o, lse = parbake.single_decode_with_kv_cache(q[0], k, v, return_lse=True, **Where.target)
    worst.see("decode", o[None], lse[None], dense.attention(q, k, v))
    name(f"prefill 20x{n}")
    q = randn(20, 4, 64)
    got = parbake.single_prefill_with_kv_cache(q, k, v, causal=True, return_lse=True, **Where.target)
    worst.see("prefill", *got, dense.attention(q, k, v, causal=True))
    return worst


@check
def views_of_packed_qkv():
    worst = Worst()
    for heads, kv_heads, dim in ((8, 2, 64), (32, 8, 128), (5, 1, 256)) if not Where.host else ((8, 2, 64),):
        lens = gpu([100, 0, 1, 513], [30, 0, 1, 70])
        name(f"packed {heads}/{kv_heads} {dim}")
        packed = randn(sum(lens), (heads + 2 * kv_heads) * dim)
        q, k, v = (x.unflatten(-1, (-1, dim)) for x in packed.split([heads * dim, kv_heads * dim, kv_heads * dim], -1))
        wrapper = parbake.BatchPrefillWithRaggedKVCacheWrapper(workspace(dim), **Where.target)
        wrapper.plan(indptr(lens), indptr(lens), heads, kv_heads, dim, causal=True)
        around = torch.full((sum(lens), 2 * heads, dim), 7.0, dtype=BF16, device=Where.device)
        out = around[:, ::2]
        o, lse = wrapper.run(q, k, v, out=out, return_lse=True)
        worst.see("packed", o, lse, dense.batch(q, k, v, lens, lens, causal=True))
        assert (around[:, 1::2] == 7).all(), "what lies between the outputs was written to"
    return worst


@check
def groups_of_1_to_64():
    worst = Worst()
    for group in (*range(1, 18), 24, 31, 32, 33, 48, 63, 64):
        lens = gpu([700, 3, 2049], [70, 3, 130])
        paged(worst, [1, 1, 1], lens, 16, group * 2, 2, (128, 128), BF16)
        paged(worst, [5, 2, gpu(130, 20)], lens, 16, group, 1, (64, 64), F16, causal=True)
    return worst


@check
def a_batch_of_65537():
    count = gpu(65_537, 700)
    worst = Worst()
    lens = [1 + (i * 7) % 40 for i in range(count)]
    paged(worst, [1] * count, lens, 16, 8, 2, (64, 64), BF16)
    paged(worst, [i % 3 for i in range(count)], lens, 16, 8, 2, (64, 64), BF16, causal=True)
    return worst


@check
def logits_of_minus_245000():
    """A mask's sentinel or a first maximum of −5e4 would hide all keys: here they weigh the same, or as they differ."""
    worst = Worst()
    for dtype in (BF16, F16):
        for m in (1, 33, 300):
            name(f"{m} keys {dtype}")
            q = torch.full((2, 4, 128), 146.0, device=Where.device).to(dtype)
            k, v = torch.full((m, 2, 128), -148.0, device=Where.device).to(dtype), randn(m, 2, 128, dtype=dtype)
            o, lse = parbake.single_prefill_with_kv_cache(q, k, v, return_lse=True, **Where.target)
            want = dense.attention(q, k, v)
            # The last bit of a logarithm is 0.03 here; results of keys that were shared out are merged by it.
            worst.see(f"{m} keys", o, None, want, 1.5e-2)
            assert ((lse.double() - want[1]) / want[1]).abs().max() < 1e-6, "logarithms"
    return f"{worst}, logits of {want[1].mean().item() * math.log(2):.4g}"


@check
def cascade_is_one_level():
    worst, shared, size = Worst(), gpu(4096, 64), 16
    # The queries are the last tokens of what is a request's own.
    own = gpu([300, 5, 2000, 77] * 8, [30, 5, 77])
    prefix = pages([shared], size, 8, (128, 128), BF16, spare=0)
    rest = pages(own, size, 8, (128, 128), BF16, spare=5)
    k, v = (torch.cat(p) for p in ((prefix.k_pages, rest.k_pages), (prefix.v_pages, rest.v_pages)))
    rest.indices += len(prefix.k_pages)
    integers = lambda *x: torch.tensor(x, dtype=torch.int32, device=Where.device)  # noqa: E731
    for qo_len, causal in ((1, False), (5, True)):
        name(f"prefix {shared}, {len(own)} requests, {qo_len} queries")
        q, qo_lens = randn(qo_len * len(own), 32, 128), [qo_len] * len(own)
        wrapper = parbake.MultiLevelCascadeAttentionWrapper(2, workspace(128), **Where.target)
        wrapper.plan(
            [integers(0, len(q)), indptr(qo_lens)], [prefix.indptr, rest.indptr], [prefix.indices, rest.indices],
            [prefix.last, rest.last], 32, 8, 128, size, causal=causal,
        )  # fmt: skip
        o = wrapper.run(q, (k, v))
        for q1, o1, k1, v1 in zip(q.split(qo_len), o.split(qo_len), rest.k.split(own), rest.v.split(own)):
            k1, v1 = torch.cat((prefix.k, k1)), torch.cat((prefix.v, v1))
            worst.see("cascade", o1, None, dense.attention(q1, k1, v1, causal=causal), 8e-3)
    return worst


@check
def the_same_twice_and_alone():
    """Equal calls give equal bits; with pieces of one size a request does so in any batch."""
    lens, qo_lens = gpu([9000, 64, 2500, 1], [900, 64, 250, 1]), [3, 1, 40, 2]
    cache, q = pages(lens, 16, 2, (128, 128), BF16), randn(sum(qo_lens), 8, 128)
    wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(workspace(128), **Where.target)
    for how in ({}, {"fixed_split_size": gpu(32, 8)}, {"disable_split_kv": True}):
        name(f"{how}")
        wrapper.plan(indptr(qo_lens), *cache.batch, 8, 2, 128, 16, causal=True, **how)
        whole = wrapper.run(q, cache.cache())
        for _ in range(gpu(20, 2)):
            assert torch.equal(wrapper.run(q, cache.cache()), whole), f"{how}: another result"
        for i, (begin, n) in enumerate(zip(indptr(qo_lens).tolist(), qo_lens)) if how else ():
            begins = cache.indptr[i : i + 2]
            own = cache.indices[begins[0] : begins[1]]
            wrapper.plan(indptr([n]), begins - begins[0], own, cache.last[i : i + 1], 8, 2, 128, 16, causal=True, **how)
            assert torch.equal(wrapper.run(q[begin : begin + n], cache.cache()), whole[begin : begin + n]), f"{how}: {i}"
    return "bit for bit"


@check
def a_graph_replayed_with_other_batches():
    """Captured are the plan, from lengths on the device, and the launch; lengths, pages and tokens change between replays."""
    worst, most = Worst(), 64
    integers = lambda n: torch.zeros(n, dtype=torch.int32, device=Where.device)  # noqa: E731
    k, v = (torch.zeros(600, 16, 2, 128, dtype=BF16, device=Where.device) for _ in range(2))
    room = workspace(128)
    for decode in (True, False):
        begins, pages_at, table, last = integers(5), integers(5), integers(600), integers(4)
        if decode:
            q = randn(4, 8, 128)
            wrapper = parbake.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(room, pages_at, table, last, **Where.target)
            plan = lambda: wrapper.plan(pages_at, table, last, 8, 2, 128, 16)  # noqa: B023, E731
        else:
            q = randn(most, 8, 128)
            wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(room, "NHD", True, begins, pages_at, table, last, **Where.target)
            plan = lambda: wrapper.plan(begins, pages_at, table, last, 8, 2, 128, 16, causal=True, num_tokens=most)  # noqa: B023, E731
        out, lse = torch.empty_like(q), torch.empty(len(q), 8, device=Where.device)

        def step():
            plan()  # noqa: B023
            wrapper.run(q, (k, v), out=out, lse=lse, return_lse=True)  # noqa: B023

        graph = None
        for i, lens in enumerate(gpu([[5, 0, 700, 16], [3000, 1, 2, 3], [0, 0, 0, 0], [2000, 2000, 2000, 2000]],
                                     [[5, 0, 70, 16], [300, 1, 2, 3], [0, 0, 0, 0]])):  # fmt: skip
            qo_lens = [1] * 4 if decode else [[1, 2, 3, 4], [0, 40, 0, 24], [1, 0, 0, 0], [16] * 4][i]
            name(f"replay {i} decode {decode} kv {lens} q {qo_lens}")
            cache = pages(lens, 16, 2, (128, 128), BF16, seed=i)
            k[: len(cache.k_pages)], v[: len(cache.v_pages)] = cache.k_pages, cache.v_pages
            for to, value in zip((begins, pages_at, table, last), (indptr(qo_lens), *cache.batch)):
                to[: len(value)] = value
            out.fill_(math.nan)
            room.fill_(255)
            if Where.host:
                step()
            elif graph is None:
                step()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    step()
                out.fill_(math.nan)
            if graph:
                graph.replay()
            want, n = dense.batch(q[: sum(qo_lens)], cache.k, cache.v, qo_lens, lens, causal=not decode), sum(qo_lens)
            worst.see(f"replay {i}", out[:n], lse[:n], want)
    return worst


@check
def scores_that_are_modified():
    from parbake._attention import score

    lens, qo_lens = gpu([700, 33, 1500], [70, 33, 5]), gpu([200, 33, 1], [20, 33, 1])
    worst, skipped = Worst(), []
    masks = [torch.rand(n, m, device=Where.device) < 0.5 for n, m in zip(qo_lens, lens)]
    slopes = score.alibi_slopes(8, q.device)
    for how, reference in (
        ({"custom_mask": torch.cat([m.reshape(-1) for m in masks])}, {"mask": masks}),
        ({"logits_soft_cap": 30.0}, {"soft_cap": 30.0, "causal": True}),
        ({"logits_soft_cap": 1.0, "window_left": 128}, {"soft_cap": 1.0, "causal": True, "window": 128}),
        ({"pos_encoding_mode": "ROPE_LLAMA", "rope_scale": 2.0}, {"rope": (2.0, 1e4), "causal": True}),
        ({"pos_encoding_mode": "ALIBI"}, {"slopes": slopes, "causal": True}),
    ):
        name(f"{list(how)}")
        # Turned rows are rounded to their type once more, which the bound of bf16 has no room for.
        dtype = torch.float16 if "rope" in reference else BF16
        cache, q = pages(lens, 16, 2, (128, 128), dtype), randn(sum(qo_lens), 8, 128).to(dtype)
        wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(workspace(128), **Where.target)
        try:
            wrapper.plan(indptr(qo_lens), *cache.batch, 8, 2, 128, 16, causal=True, **how)
        except NotImplementedError:
            skipped += how
            continue
        got = wrapper.run(q, cache.cache(), return_lse=True)
        worst.see(f"{list(how)}", *got, dense.batch(q, cache.k, cache.v, qo_lens, lens, **reference))
    if skipped and not worst.cases:
        raise NotImplementedError(f"no kernel for {', '.join(skipped)}")
    return f"{worst}; no kernel for {skipped}" if skipped else worst
