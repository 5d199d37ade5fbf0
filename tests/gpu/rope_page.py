#!/usr/bin/env python3
"""Rotary embeddings, paged caches and merges on a GPU, through the Python package. Needs PyTorch with CUDA.

    python3 tests/gpu/rope_page.py [--only WORD] [--bench] [--json FILE]

Every check is against a reference in float64, or exact where bytes are moved, and against FlashInfer where that can be
imported. --bench times U8, U9 and U10 beside torch.neg(out=) moving the same bytes: the median over replays of a CUDA graph
of launches that rotate over distinct buffers.
"""

import argparse
import json
import math
import statistics
import sys

import torch

import parbake

try:
    import flashinfer
except ImportError:
    flashinfer = None

DEVICE = "cuda"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# What an output may differ by: half an ulp, and what f32 leaves where products cancel.
TOLERANCE = {torch.float16: (2e-6, 5e-4), torch.bfloat16: (2e-6, 4e-3), torch.float32: (2e-6, 1e-6)}


def randn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def close(got, want, what):
    atol, rtol = TOLERANCE[got.dtype]
    worst = ((got.double() - want).abs() - rtol * want.abs()).max().item() if got.numel() else 0.0
    if not worst <= atol:
        raise AssertionError(f"{what}: {worst:g} beyond {rtol:g} of the reference, allowed {atol:g}")


def equal(got, want, what):
    if not torch.equal(got.view(torch.uint8), want.view(torch.uint8)):
        raise AssertionError(f"{what}: bytes differ")


# ---- references -----------------------------------------------------------------------------------------------------

def frequencies(rotary_dim, scale=1.0, theta=1e4, llama=None):
    exact = theta ** (-2.0 * torch.arange(rotary_dim // 2, dtype=torch.float64) / rotary_dim)
    if llama is None:
        return (exact / scale).float()
    low, high, old = llama
    f32 = lambda x: torch.as_tensor(x, dtype=torch.float64).float().double()
    g, slowest = exact.float().double(), f32(1.0 / scale)
    smooth = f32(g * f32(old / (2 * math.pi * (high - low))) + f32(-low / (high - low))).clamp(0, 1)
    return (g * f32(smooth * f32(1.0 - slowest) + slowest)).float()


def turned(x, angle, interleave):
    """angle: f64 [tokens, rotary_dim / 2]."""
    half = angle.shape[1]
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleave else (slice(0, half), slice(half, 2 * half))
    y, x = x.double().clone(), x.double()
    c, s = angle.cos()[:, None], angle.sin()[:, None]
    y[..., a], y[..., b] = x[..., a] * c - x[..., b] * s, x[..., b] * c + x[..., a] * s
    return y


def angles(positions, frequency):
    """The contract: f32(position) * frequency is one f32 product."""
    return (positions.float()[:, None] * frequency.to(DEVICE)).double()


def pages_for(lengths, page_size, pages):
    """Page table of requests of these lengths, with pages in random order."""
    counts = [-(-n // page_size) for n in lengths]
    indptr = torch.tensor([0, *counts]).cumsum(0).int()
    indices = torch.randperm(pages)[: sum(counts)].int()
    last = torch.tensor([(n - 1) % page_size + 1 for n in lengths], dtype=torch.int32)
    return indices.to(DEVICE), indptr.to(DEVICE), last.to(DEVICE)


def slots(batch_indices, positions, indices, indptr, page_size):
    """Flat slots [tokens], -1 for none."""
    request, position = batch_indices.long(), positions.long()
    page = indices.long()[indptr.long()[request.clamp(min=0)] + position.clamp(min=0) // page_size]
    return torch.where((request < 0) | (position < 0) | (page < 0), -1, page * page_size + position % page_size)


# ---- checks ---------------------------------------------------------------------------------------------------------

def check_rope():
    n = 0
    for dtype in DTYPES:
        for tokens, hq, hk, dim, rotary in [(1, 1, 1, 64, 64), (19, 32, 8, 128, 128), (99, 8, 1, 256, 64), (7, 4, 2, 80, 32),
                                            (989, 32, 32, 64, 64), (4096, 32, 8, 128, 128), (3, 2, 1, 10, 6)]:
            for interleave in (False, True):
                index = (torch.int32, torch.int64)[n % 2]
                far = (1000, 1_000_000, 2**31 - 1)[n % 3]
                pos = torch.randint(0, far, (tokens,), device=DEVICE).to(index)
                q, k = randn(tokens, hq, dim, dtype=dtype), randn(tokens, hk, dim, dtype=dtype)
                angle = angles(pos, frequencies(rotary))
                want = turned(q, angle, interleave), turned(k, angle, interleave)
                got = parbake.apply_rope_pos_ids(q, k, pos, rotary, interleave)
                what = f"{dtype} {tokens} {hq}+{hk} {dim}/{rotary} interleave {interleave} positions to {far}"
                for g, w in zip(got, want):
                    close(g, w, f"apply_rope_pos_ids {what}")
                parbake.apply_rope_pos_ids_inplace(q, k, pos, rotary, interleave)
                equal(q, got[0], f"in place {what}")
                equal(k, got[1], f"in place {what}")
                n += 1
    return f"{n} shapes"


def check_views():
    """Queries and keys as slices of one projection; what lies beside them stays (flashinfer#527, #1865)."""
    for dtype in DTYPES:
        for dim, offset in ((128, 0), (64, 0), (128, 3)):
            tokens, hq, hk = 123, 8, 2
            qkv = randn(tokens, (hq + 2 * hk) * dim + offset, dtype=dtype)
            before = qkv.clone()
            cut = lambda t, first, heads: t[:, offset + first * dim : offset + (first + heads) * dim].unflatten(1, (heads, dim))
            q, k = cut(qkv, 0, hq), cut(qkv, hq, hk)
            pos = torch.arange(tokens, device=DEVICE)
            parbake.apply_rope_pos_ids_inplace(q, k, pos)
            angle = angles(pos, frequencies(dim))
            close(q, turned(cut(before, 0, hq), angle, False), "q of qkv")
            close(k, turned(cut(before, hq, hk), angle, False), "k of qkv")
            equal(cut(qkv, hq + hk, hk).contiguous(), cut(before, hq + hk, hk).contiguous(), "v beside them")
            equal(qkv[:, :offset].contiguous(), before[:, :offset].contiguous(), "what lies before them")
    return "split qkv"


def check_indptr():
    lengths = [0, 5, 0, 1, 77, 0, 300]
    indptr = torch.tensor([0, *lengths]).cumsum(0).to(DEVICE)
    offsets = torch.randint(0, 10**6, (len(lengths),), device=DEVICE)
    pos = torch.cat([torch.arange(n, device=DEVICE) + o for n, o in zip(lengths, offsets.tolist())])
    q, k = randn(sum(lengths), 4, 128), randn(sum(lengths), 2, 128)
    for index in (torch.int32, torch.int64):
        for llama in (None, (1.0, 4.0, 8192.0)):
            scale, theta = (8.0, 5e5) if llama else (1.0, 1e4)
            run = parbake.apply_llama31_rope if llama else parbake.apply_rope
            got = run(q, k, indptr.to(index), offsets.to(index))
            angle = angles(pos, frequencies(128, scale, theta, llama))
            close(got[0], turned(q, angle, False), f"indptr {index} llama {llama}")
            close(got[1], turned(k, angle, False), f"indptr {index} llama {llama}")
            other = parbake.apply_llama31_rope_pos_ids if llama else parbake.apply_rope_pos_ids
            equal(other(q, k, pos)[0], got[0], "indptr and pos_ids")
    return f"{len(lengths)} requests, some empty"


def cache_of(positions, rotary):
    angle = angles(torch.arange(positions, device=DEVICE), frequencies(rotary))
    return torch.cat([angle.cos(), angle.sin()], dim=1).float()


def turned_by(x, cache, positions, interleave):
    half = cache.shape[1] // 2
    angle = torch.atan2(cache[:, half:].double(), cache[:, :half].double())[positions.long()]
    return turned(x, angle, interleave)


def check_cache():
    for dtype in DTYPES:
        for rotary, neox in ((128, True), (64, False), (32, True)):
            cache = cache_of(4096, rotary)
            pos = torch.randint(0, 4096, (77,), device=DEVICE)
            q, k = randn(77, 8 * 128, dtype=dtype), randn(77, 2 * 128, dtype=dtype)
            got = parbake.apply_rope_with_cos_sin_cache(pos, q, k, 128, cache, neox)
            for x, y in zip((q, k), got):
                # The cache is of f32: its rows are no more than that from the unit circle.
                want = turned_by(x.unflatten(1, (-1, 128)), cache, pos, not neox).flatten(1)
                worst = (y.double() - want).abs().max().item()
                assert worst <= TOLERANCE[dtype][1] * want.abs().max().item() + 3e-6, f"cache {dtype}: {worst:g}"
            parbake.apply_rope_with_cos_sin_cache_inplace(pos, q, k, 128, cache, neox)
            equal(q, got[0], "cache in place")
    return "f32 cache"


def check_peer():
    if flashinfer is None:
        return "FlashInfer is not there: skipped"
    q, k = randn(321, 32, 128), randn(321, 8, 128)
    pos = torch.randint(0, 4000, (321,), device=DEVICE, dtype=torch.int32)
    for ours, theirs in (
        (parbake.apply_rope_pos_ids, flashinfer.apply_rope_pos_ids),
        (parbake.apply_llama31_rope_pos_ids, flashinfer.apply_llama31_rope_pos_ids),
    ):
        for g, w in zip(ours(q, k, pos), theirs(q, k, pos)):
            torch.testing.assert_close(g, w, rtol=1e-2, atol=2e-2)
    v, s = randn(64, 7, 8, 128), torch.randn(64, 7, 8, device=DEVICE) * 5
    for g, w in zip(parbake.merge_states(v, s), flashinfer.merge_states(v, s)):
        torch.testing.assert_close(g, w, rtol=1e-2, atol=1e-2)
    return "as FlashInfer"


def check_append():
    n = 0
    for dtype in (*DTYPES, torch.float8_e4m3fn, torch.uint8):
        for page_size, heads, dim in ((1, 1, 64), (16, 8, 128), (5, 3, 80), (64, 4, 7)):
            lengths = [1, 54, 97, 512]
            indices, indptr, last = pages_for(lengths, page_size, 900)
            tokens = sum(lengths)
            append_indptr = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
            seq_lens = parbake.get_seq_lens(indptr, last, page_size)
            assert seq_lens.tolist() == lengths
            request, position = parbake.get_batch_indices_positions(append_indptr, seq_lens, tokens + 3)
            assert request[-3:].tolist() == [-1] * 3 and position[-3:].tolist() == [-1] * 3
            byte = lambda *shape: torch.randint(0, 120, shape, device=DEVICE, dtype=torch.uint8).repeat_interleave(
                dtype.itemsize, -1).view(dtype)
            key, value = byte(tokens + 3, heads, dim), byte(tokens + 3, heads, dim)
            at = slots(request, position, indices, indptr, page_size)
            for layout in ("NHD", "HND"):
                for one in (False, True):
                    shape = (page_size, heads, dim) if layout == "NHD" else (heads, page_size, dim)
                    cache = byte(900, 2, *shape)
                    want = cache.clone()
                    given = cache if one else (cache[:, 0], cache[:, 1])
                    parbake.append_paged_kv_cache(key, value, request, position, given, indices, indptr, last, layout)
                    for plane, x in enumerate((key, value)):
                        view = want[:, plane] if layout == "NHD" else want[:, plane].transpose(1, 2)
                        keep = at >= 0
                        page, entry = at[keep] // page_size, at[keep] % page_size
                        view.view(torch.uint8)[page, entry] = x.view(torch.uint8)[keep]
                    equal(cache, want, f"append {dtype} page {page_size} heads {heads} dim {dim} {layout} one {one}")
                    n += 1
    return f"{n} caches, exact"


def check_far_pages():
    """Offsets beyond 2^31 and 2^32 elements (flashinfer#3130, vllm#1486, vllm#50427)."""
    page_size, heads, dim, pages = 16, 8, 128, 140_000
    cache = torch.zeros(pages, 2, page_size, heads, dim, dtype=torch.bfloat16, device=DEVICE)
    assert (pages - 1) * cache.stride(0) > 2**32
    indices = torch.tensor([3, pages - 1, pages // 2, pages - 2], dtype=torch.int32, device=DEVICE)
    indptr = torch.tensor([0, 4], dtype=torch.int32, device=DEVICE)
    tokens = 4 * page_size
    key, value = randn(tokens, heads, dim), randn(tokens, heads, dim)
    request, position = torch.zeros(tokens, dtype=torch.int32, device=DEVICE), torch.arange(tokens, device=DEVICE).int()
    parbake.append_paged_kv_cache(key, value, request, position, cache, indices, indptr, None)
    equal(cache[indices.long(), 0].flatten(0, 1), key, "far keys")
    equal(cache[indices.long(), 1].flatten(0, 1), value, "far values")
    mapping = torch.tensor([[pages - 1, 7], [3, pages - 3], [-1, 5]], device=DEVICE)
    parbake.copy_blocks(cache[:, 0], cache[:, 1], mapping)
    equal(cache[7], cache[pages - 1], "far block to a near one")
    equal(cache[pages - 3], cache[3], "near block to a far one")
    touched = {3, 7, pages - 1, pages // 2, pages - 2, pages - 3}
    rest = [i for i in range(0, pages, 997) if i not in touched]
    assert not cache[rest].any(), "a page that is nobody's was written"
    del cache
    # A fused projection of more than 2^31 elements.
    rows = 2**31 // (48 * 128) + 1000
    qkv = torch.zeros(rows, 48 * 128, dtype=torch.bfloat16, device=DEVICE)
    tail = randn(1000, 48 * 128)
    qkv[-1000:] = tail
    pos = torch.zeros(rows, dtype=torch.int32, device=DEVICE)
    pos[-1000:] = torch.arange(1000, device=DEVICE).int()
    parbake.apply_rope_pos_ids_inplace(qkv[:, :4096].unflatten(1, (32, 128)), qkv[:, 4096:5120].unflatten(1, (8, 128)), pos)
    want = turned(tail[:, :4096].unflatten(1, (32, 128)), angles(pos[-1000:], frequencies(128)), False)
    close(qkv[-1000:, :4096].unflatten(1, (32, 128)), want, "far rows of qkv")
    return "beyond 2^32 elements"


def check_mla():
    lengths, page_size = [33, 1, 700], 64
    indices, indptr, last = pages_for(lengths, page_size, 40)
    tokens = sum(lengths)
    request, position = parbake.get_batch_indices_positions(
        torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE), torch.tensor(lengths, device=DEVICE).int(), tokens)
    at = slots(request, position, indices, indptr, page_size)
    ckv, kpe = randn(tokens, 512), randn(tokens, 64)
    caches = randn(40, page_size, 512), randn(40, page_size, 64)
    want = [c.clone() for c in caches]
    parbake.append_paged_mla_kv_cache(ckv, kpe, request, position, *caches, indices, indptr, last)
    for cache, w, x in zip(caches, want, (ckv, kpe)):
        w.view(-1, x.shape[1])[at] = x
        equal(cache, w, "append MLA")
    nope, rope, k = randn(77, 128, 128), randn(77, 1, 64), randn(77, 128, 192)
    parbake.concat_mla_k(k, nope, rope)
    equal(k, torch.cat([nope, rope.expand(-1, 128, -1)], -1), "concat_mla_k")
    return "MLA caches and keys"


def fp8_close(got, want, what):
    """Within one unit in the last place of the rounded reference."""
    most = torch.finfo(got.dtype).max
    rounded = want.clamp(-most, most).float().to(got.dtype)
    order = lambda t: torch.where(t.view(torch.uint8).int() > 127, 128 - t.view(torch.uint8).int(), t.view(torch.uint8).int())
    worst = (order(got) - order(rounded)).abs().max().item() if got.numel() else 0
    apart = (order(got) != order(rounded)).float().mean().item() if got.numel() else 0
    assert worst <= 1 and apart < 1e-3, f"{what}: {worst} units, {apart:.2%} of the elements"


def check_quantize():
    cache, tokens, lengths, page_size = cache_of(4096, 64), 300, [100, 200], 16
    indices, indptr, _ = pages_for(lengths, page_size, 50)
    request, position = parbake.get_batch_indices_positions(
        torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE), torch.tensor(lengths, device=DEVICE).int(), tokens)
    at = slots(request, position, indices, indptr, page_size)
    pos = torch.randint(0, 4096, (tokens,), device=DEVICE)
    for dtype in (torch.float16, torch.bfloat16):
        for quant in (torch.float8_e4m3fn, torch.float8_e5m2):
            for mla in (False, True):
                hq, hk, nope = (128, 1, 512) if mla else (32, 8, 64)
                heads = lambda x: x[:, 0] if mla else x
                q_rope, q_nope = randn(tokens, hq, 64, dtype=dtype), randn(tokens, hq, nope, dtype=dtype)
                k_rope, k_nope = randn(tokens, hk, 64, dtype=dtype), randn(tokens, hk, nope, dtype=dtype)
                want = [turned_by(q_rope, cache, pos, False) * 2, turned_by(k_rope, cache, pos, False) * 0.5,
                        q_nope.double() * 2, k_nope.double() * 0.5]
                run = parbake.mla_rope_quantize_fp8 if mla else parbake.rope_quantize_fp8
                got = run(q_rope, heads(k_rope), q_nope, heads(k_nope), cache, pos, True, quant, 2.0, 0.5)
                for g, w, key in zip(got, want, (False, True, False, True)):
                    fp8_close(g, heads(w) if key else w, f"rope_quantize_fp8 {dtype} {quant} mla {mla}")
                for layout in ("NHD",) if mla else ("NHD", "HND"):
                    zeros = lambda *shape: torch.zeros(shape, dtype=torch.uint8, device=DEVICE).view(quant)
                    v = None if mla else randn(tokens, hk, 64 + nope, dtype=dtype)
                    shape = (page_size, hk) if layout == "NHD" else (hk, page_size)
                    caches = (zeros(50, page_size, nope), zeros(50, page_size, 64)) if mla else tuple(
                        zeros(50, *shape, 64 + nope) for _ in range(2))
                    q = parbake.rope_quantize_fp8_append_paged_kv_cache(
                        q_rope, heads(k_rope), q_nope, heads(k_nope), v, cache, pos, caches, indices, indptr, request, position,
                        quantize_dtype=quant, quant_scale_q=2.0, quant_scale_kv=0.5, page_size=page_size, kv_layout=layout)
                    equal(q[0], got[0], "queries of the fused append")
                    equal(q[1], got[2], "queries of the fused append")
                    flat = [(c if layout == "NHD" else c.transpose(1, 2)).contiguous().view(torch.uint8).flatten(0, 1)
                            for c in caches]
                    parts = [got[3], got[1]] if mla else [torch.cat([got[1].view(torch.uint8), got[3].view(torch.uint8)], -1)]
                    for c, x in zip(flat, parts):
                        equal(c[at], x.view(torch.uint8), "keys of the fused append")
                    if not mla:
                        fp8_close(flat[1][at].view(quant), v.double() * 0.5, "values of the fused append")
    return "FP8, plain and appended"


def merged(v, s):
    v, s = v.double(), s.double()
    top = s.amax(1, keepdim=True)
    w = torch.where(top == -math.inf, 0.0, torch.exp2(s - top))
    total = w.sum(1)
    out = torch.where((w > 0)[..., None], w[..., None] * v, 0.0).sum(1) / torch.where(total == 0, 1.0, total)[..., None]
    return out, top[:, 0] + total.log2()


def check_merge():
    for dtype in DTYPES:
        for rows, heads, dim, k in ((1, 1, 64, 1), (64, 16, 128, 2), (512, 4, 80, 7), (70000, 1, 64, 3), (99, 32, 512, 16)):
            v, s = randn(rows, k, heads, dim, dtype=dtype), torch.randn(rows, k, heads, device=DEVICE) * 8
            s[torch.rand_like(s) < 0.2] = -math.inf
            want_v, want_s = merged(v, s)
            got_v, got_s = parbake.merge_states(v, s)
            close(got_v, want_v, f"merge_states {dtype} {k}")
            assert torch.equal(got_s == -math.inf, want_s == -math.inf)
            finite = want_s > -math.inf
            assert ((got_s.double() - want_s).abs()[finite] <= 4e-6 + 2e-6 * want_s.abs()[finite]).all()
            assert not got_v[~finite].any(), "a state of nothing is 0"
            if k < 2:
                equal(got_v[finite], v[:, 0][finite], "one state comes out as it went in")
                continue
            want_v, _ = merged(v[:, :2], s[:, :2])
            pair = parbake.merge_state(v[:, 0], s[:, 0], v[:, 1], s[:, 1])
            close(pair[0], want_v, f"merge_state {dtype}")
            a, b = v[:, 0].clone(), s[:, 0].clone()
            parbake.merge_state_in_place(a, b, v[:, 1], s[:, 1])
            equal(a, pair[0], "in place")
            equal(b, pair[1], "in place")
            a, b, mask = v[:, 0].clone(), s[:, 0].clone(), torch.rand(rows, device=DEVICE) < 0.5
            parbake.merge_state_in_place(a, b, v[:, 1], s[:, 1], mask)
            equal(a, torch.where(mask[:, None, None], pair[0], v[:, 0]), "in place with a mask")
    # (0, -inf) and (0, -inf); what a state of weight 0 holds does not matter; NaN and +inf are seen.
    for run in (parbake.merge_state, lambda *x: parbake.merge_states(torch.stack(x[::2], 1), torch.stack(x[1::2], 1))):
        v, none = randn(2, 3, 64), torch.full((2, 3), -math.inf, device=DEVICE)
        nothing = run(torch.zeros_like(v), none, torch.zeros_like(v), none)
        assert not nothing[0].any() and (nothing[1] == -math.inf).all()
        some = run(v, torch.zeros_like(none), torch.full_like(v, math.nan), none)
        equal(some[0], v, "a state of weight 0 that holds NaN")
        for bad in (math.nan, math.inf):
            out = run(v, torch.full_like(none, bad), v, none)
            assert out[0].isnan().all() and out[1].isnan().all(), f"s = {bad}"
        large = run(v, torch.full_like(none, 3e38), v + 1, torch.full_like(none, -3e38))
        equal(large[0], v, "far apart")
    return "merges"


def check_graph():
    """A captured append and rope take what the tensors hold when the graph is replayed."""
    tokens, page_size = 64, 16
    q, k, v = randn(tokens, 32, 128), randn(tokens, 8, 128), randn(tokens, 8, 128)
    source = q.clone(), k.clone()
    pos, request = torch.zeros(tokens, dtype=torch.int32, device=DEVICE), torch.zeros(tokens, dtype=torch.int32, device=DEVICE)
    indices, indptr, _ = pages_for([1024], page_size, 100)
    cache = torch.zeros(100, 2, page_size, 8, 128, dtype=torch.bfloat16, device=DEVICE)

    def step():
        parbake.apply_rope_pos_ids_inplace(q, k, pos)
        parbake.append_paged_kv_cache(k, v, request, pos, cache, indices, indptr, None)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for first in (0, 100, 900):
        q.copy_(source[0]), k.copy_(source[1]), cache.zero_()
        pos.copy_(torch.arange(first, first + tokens))
        request.fill_(-1)[: tokens - 5] = 0
        graph.replay()
        angle = angles(pos, frequencies(128))
        close(q, turned(source[0], angle, False), "replayed rope")
        at = slots(request, pos, indices, indptr, page_size)
        equal(cache[:, 0].flatten(0, 1)[at[:-5]], k[:-5], "replayed append")
        assert cache.any(-1).any(-1).sum().item() == 2 * (tokens - 5), "only those slots"
    return "three replays"


def check_empty():
    empty = torch.empty(0, dtype=torch.int32, device=DEVICE)
    zero = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    q, k = randn(0, 4, 128), randn(0, 2, 128)
    assert parbake.apply_rope_pos_ids(q, k, empty)[0].shape == q.shape
    assert parbake.apply_rope(q, k, zero, empty)[1].shape == k.shape
    cache = torch.zeros(3, 2, 16, 2, 128, dtype=torch.bfloat16, device=DEVICE)
    parbake.append_paged_kv_cache(k, k, empty, empty, cache, empty, zero, empty)
    assert not cache.any()
    assert parbake.merge_state(q, q[..., 0].float(), q, q[..., 0].float())[0].shape == q.shape
    none = parbake.merge_states(randn(5, 0, 4, 64), torch.empty(5, 0, 4, device=DEVICE))
    assert not none[0].any() and (none[1] == -math.inf).all()
    assert parbake.get_seq_lens(zero, empty, 16).shape == (0,)
    return "no tokens, no states, no requests"


# ---- times ----------------------------------------------------------------------------------------------------------

def microseconds(calls):
    """Median time of a launch; calls rotate over distinct buffers."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(30):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(), graph.replay(), end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / len(calls))
    return statistics.median(times)


def bench():
    tokens, hq, hk, dim, page_size, sets = 4096, 32, 8, 128, 16, 12
    rows, cache = [], cache_of(8192, dim)
    pos = torch.arange(tokens, device=DEVICE).int()
    request = torch.zeros(tokens, dtype=torch.int32, device=DEVICE)
    indices, indptr, _ = pages_for([tokens], page_size, 1024)

    def row(name, nbytes, calls):
        half = [randn(nbytes // 4) for _ in range(sets)]
        other = [torch.empty_like(x) for x in half]
        neg = microseconds([lambda x=x, y=y: torch.neg(x, out=y) for x, y in zip(half, other)])
        time = microseconds(calls)
        rows.append({"case": name, "bytes": nbytes, "us": time, "neg_us": neg, "ratio": neg / time})
        print(f"{name:44} {nbytes / 1e6:7.1f} MB {time:8.2f} us   neg {neg:8.2f} us   ratio {neg / time:5.2f}", flush=True)

    qs, ks = [randn(tokens, hq, dim) for _ in range(sets)], [randn(tokens, hk, dim) for _ in range(sets)]
    vs = [randn(tokens, hk, dim) for _ in range(sets)]
    nbytes = 2 * (qs[0].nbytes + ks[0].nbytes)
    for interleave in (False, True):
        row(f"rope in place T4096 32q+8kv D128 interleave {interleave}", nbytes,
            [lambda q=q, k=k: parbake.apply_rope_pos_ids_inplace(q, k, pos, None, interleave) for q, k in zip(qs, ks)])
    row("rope from a cache in place", nbytes + cache[:tokens].nbytes,
        [lambda q=q, k=k: parbake.apply_rope_with_cos_sin_cache_inplace(pos, q.flatten(1), k.flatten(1), dim, cache)
         for q, k in zip(qs, ks)])
    caches = [torch.zeros(1024, 2, page_size, hk, dim, dtype=torch.bfloat16, device=DEVICE) for _ in range(sets)]
    row("append T4096 8kv D128 page 16", 4 * ks[0].nbytes,
        [lambda k=k, v=v, c=c: parbake.append_paged_kv_cache(k, v, request, pos, c, indices, indptr, None)
         for k, v, c in zip(ks, vs, caches)])
    fp8 = [[torch.zeros(1024, page_size, hk, dim, dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fn) for _ in "kv"]
           for _ in range(sets)]
    outs = [torch.empty(tokens, hq, dim, dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fn) for _ in range(sets)]
    read = qs[0].nbytes + 2 * ks[0].nbytes
    row("rope, FP8 and append T4096 32q/8kv", read * 3 // 2 + cache[:tokens].nbytes,
        [lambda q=q, k=k, v=v, c=c, o=o: parbake.rope_quantize_fp8_append_paged_kv_cache(
            q, k, None, None, v, cache, pos, tuple(c), indices, indptr, request, pos, q_rope_out=o)
         for q, k, v, c, o in zip(qs, ks, vs, fp8, outs)])
    s = [torch.randn(tokens, hq, device=DEVICE) for _ in range(2)]
    merge = [torch.empty_like(qs[0]) for _ in range(sets)]
    lse = torch.empty_like(s[0])
    row("merge_state T4096 32 heads D128", 3 * qs[0].nbytes + 3 * lse.nbytes,
        [lambda a=a, b=b, o=o: parbake.merge_state(a, s[0], b, s[1], v_merged=o, s_merged=lse)
         for a, b, o in zip(qs, qs[1:] + qs[:1], merge)])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="checks whose name contains this word")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--json", help="where to write the rows")
    arguments = parser.parse_args()
    torch.manual_seed(5)
    failed, report = 0, []
    for name, check in [(n[6:], f) for n, f in globals().items() if n.startswith("check_") and arguments.only in n]:
        try:
            word, summary = "ok", check()
        except Exception as error:
            word, summary, failed = "FAIL", f"{type(error).__name__}: {error}", failed + 1
        report.append({"check": name, "result": word, "summary": summary})
        print(f"{word:4} {name:10} {summary}", flush=True)
        torch.cuda.empty_cache()
    if arguments.bench:
        report += bench()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
