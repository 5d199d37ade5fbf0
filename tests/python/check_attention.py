"""The wrappers of attention: every one against float64, in every layout, and what they refuse."""

import math

from harness import Setup, check


def setup():
    """PyTorch, the references, and how tensors are made for the device."""
    import dense
    import torch

    torch.manual_seed(3)
    return torch, dense


def target():
    return {"target": "host"} if Setup.device == "cpu" else {}


def workspace(torch, dim=64):
    import parbake

    size = parbake.attention_workspace_size(dim, Setup.device, **target())
    # What is there means nothing.
    return torch.full((size,), 255, dtype=torch.uint8, device=Setup.device)


def near(got, lse, want, what=""):
    """Each head of each query within the bounds of the issue; equal where nothing is seen."""
    import torch

    o, sums = want
    bound = 5e-3 if got.dtype == torch.bfloat16 else 1e-3
    assert got.shape == o.shape, (what, got.shape, o.shape)
    off, size = (got.double() - o).norm(dim=-1), o.norm(dim=-1)
    worst = (off - bound * size).max().item() if got.numel() else 0.0
    assert not got.isnan().any() and worst <= 1e-7, (what, "o", worst)
    if lse is not None:
        same = torch.equal(lse.isinf(), sums.isinf())
        error = (lse.double() - sums).masked_fill(sums.isinf(), 0.0).abs()
        assert same and not lse.isnan().any() and (error.max() <= 1e-3 if error.numel() else True), (what, "lse")


def queries(torch, tokens, heads, dim=64, dtype=None):
    return torch.randn(tokens, heads, dim, device=Setup.device).to(dtype or torch.float16)


KV_LENS = [37, 0, 1, 130, 16]


@check("tvm_ffi", "torch")
def decode_over_pages():
    torch, dense = setup()
    import parbake

    room, case = workspace(torch), 0
    for page_size in (1, 5, 16):
        for group in range(1, 9):
            layout, pair = ("NHD", "HND")[case % 2], case % 3 > 0
            kv_heads, case = 1 + case % 2, case + 1
            pages = dense.Pages(KV_LENS, page_size, kv_heads, 64, 64, torch.float16, Setup.device)
            wrapper = parbake.BatchDecodeWithPagedKVCacheWrapper(room, layout, **target())
            wrapper.plan(*pages.batch, kv_heads * group, kv_heads, 64, page_size)
            q = queries(torch, len(KV_LENS), kv_heads * group)
            want = dense.batch(q, pages.k, pages.v, [1] * len(KV_LENS), KV_LENS)
            o, lse = wrapper.run(q, pages.cache(layout, pair), return_lse=True)
            near(o, lse, want, (page_size, group, layout, pair))


@check("tvm_ffi", "torch")
def decode_options():
    torch, dense = setup()
    import parbake

    pages = dense.Pages(KV_LENS, 16, 2, 128, 128, torch.bfloat16, Setup.device)
    wrapper = parbake.BatchDecodeWithPagedKVCacheWrapper(workspace(torch, 128), **target())
    lens, n = [1] * len(KV_LENS), len(KV_LENS)
    q, sinks = queries(torch, n, 4, 128, torch.bfloat16), torch.randn(4, device=Setup.device)
    host = [x.cpu().long() for x in pages.batch]
    for window in (-1, 0, 20):
        # 64-bit integers on the host are taken as well.
        wrapper.plan(*host, 4, 2, 128, 16, window_left=window, q_data_type="bfloat16", sm_scale=0.1)
        want = dense.batch(q, pages.k, pages.v, lens, KV_LENS, scale=0.1, window=window, sinks=sinks)
        near(*wrapper.run(q, pages.cache(), sinks=sinks, return_lse=True, window_left=window), want, window)
    wrapper.plan(*pages.batch, 4, 2, 128, 16)
    out, lse = torch.empty_like(q), torch.empty(n, 4, device=Setup.device)
    got = wrapper.run(q, pages.cache(), q_scale=0.5, k_scale=2.0, v_scale=3.0, out=out, lse=lse, return_lse=True)
    assert got[0] is out and got[1] is lse
    want = dense.batch(q, pages.k, pages.v, lens, KV_LENS)
    near(out / 3, lse, want)
    assert torch.equal(wrapper.run(q, pages.cache(), v_scale=3.0), out), "one plan, another run"
    near(wrapper.forward(q, pages.cache(), window_left=4), None, dense.batch(q, pages.k, pages.v, lens, KV_LENS, window=4))
    # Some queries of each request are causal.
    wrapper.plan(*pages.batch, 4, 2, 128, 16, q_len_per_req=3)
    q = queries(torch, 3 * n, 4, 128, torch.bfloat16)
    want = dense.batch(q, pages.k, pages.v, [3] * n, KV_LENS, causal=True)
    near(*wrapper.run_return_lse(q, pages.cache()), want)
    # A scale of 0 makes all keys weigh the same.
    wrapper.plan(*pages.batch, 4, 2, 128, 16, sm_scale=0.0)
    near(wrapper.run(q[:n], pages.cache()), None, dense.batch(q[:n], pages.k, pages.v, lens, KV_LENS, scale=0.0))


QO_LENS = [5, 3, 7, 33, 0]


@check("tvm_ffi", "torch")
def prefill_over_pages():
    torch, dense = setup()
    import parbake

    room, case = workspace(torch), 0
    for page_size in (1, 5, 16):
        for causal in (False, True):
            for window in (-1, 9):
                layout, pair, group = ("NHD", "HND")[case % 2], case % 3 > 0, (1, 2, 3, 5, 6, 7)[case % 6]
                case += 1
                pages = dense.Pages(KV_LENS, page_size, 2, 64, 64, torch.float16, Setup.device)
                begins = dense.indptr(QO_LENS, Setup.device)
                wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(room, layout, **target())
                wrapper.plan(begins, *pages.batch, 2 * group, 2, 64, page_size, causal=causal, window_left=window)
                # Rows beyond the requests are not read, nor written to.
                q = queries(torch, sum(QO_LENS), 2 * group)
                wide = torch.cat((q, torch.full_like(q[:2], math.nan)))
                want = dense.batch(q, pages.k, pages.v, QO_LENS, KV_LENS, causal=causal, window=window)
                cache = pages.cache(layout, pair)
                out = torch.full_like(wide, 7.0)
                o, lse = wrapper.run(q, cache, return_lse=True)
                near(o, lse, want, (page_size, causal, window, layout))
                wrapper.run(wide, cache, out=out)
                near(out[: len(q)], None, want)
                assert (out[len(q) :] == 7).all()
                if page_size == 16:
                    told = wrapper.forward(q, cache, not causal, window_left=-1)
                    near(told, None, dense.batch(q, pages.k, pages.v, QO_LENS, KV_LENS, causal=not causal))


@check("tvm_ffi", "torch")
def prefill_of_ragged_keys():
    torch, dense = setup()
    import parbake

    begins, kv_begins = dense.indptr(QO_LENS, Setup.device), dense.indptr(KV_LENS, Setup.device)
    for dims, dtype in (((64, 64), torch.float16), ((192, 128), torch.bfloat16)):
        wrapper = parbake.BatchPrefillWithRaggedKVCacheWrapper(workspace(torch, dims[1]), **target())
        wrapper.plan(begins, kv_begins, 4, 2, *dims, causal=True, q_data_type=dtype)
        q = queries(torch, sum(QO_LENS), 4, dims[0], dtype)
        # Views of one tensor, as a projection leaves them.
        packed = torch.randn(sum(KV_LENS), 2, sum(dims), device=Setup.device).to(dtype)
        k, v = packed.split(dims, -1)
        want = dense.batch(q, k, v, QO_LENS, KV_LENS, causal=True)
        near(*wrapper.run(q, k, v, return_lse=True), want, dims)
        heads_first = [x.transpose(0, 1).contiguous() for x in (k, v)]
        wrapper = parbake.BatchPrefillWithRaggedKVCacheWrapper(workspace(torch, dims[1]), "HND", **target())
        wrapper.begin_forward(begins, kv_begins, 4, 2, *dims, causal=True)
        near(*wrapper.forward_return_lse(q, *heads_first, causal=True), want, "HND")


@check("tvm_ffi", "torch")
def single_requests():
    torch, dense = setup()
    import parbake

    for n, m, causal, window in ((1, 1, True, -1), (5, 3, True, -1), (7, 100, True, 20), (40, 70, False, -1), (3, 0, True, -1)):
        q, k, v = queries(torch, n, 6), queries(torch, m, 2), queries(torch, m, 2)
        want = dense.attention(q, k, v, causal=causal, window=window)
        how = {"causal": causal, "window_left": window, **target()}
        near(*parbake.single_prefill_with_kv_cache(q, k, v, return_lse=True, **how), want, (n, m))
        turned = [x.transpose(0, 1).contiguous() for x in (k, v)]
        near(*parbake.single_prefill_with_kv_cache_return_lse(q, *turned, kv_layout="HND", **how), want, (n, m))
        o, lse = parbake.single_decode_with_kv_cache(q[0], k, v, window_left=window, return_lse=True, **target())
        near(o[None], lse[None], dense.attention(q[:1], k, v, window=window), "decode")
    scaled = parbake.single_prefill_with_kv_cache(q[:, :, :], k, v, 0.5, 2.0, 3.0, **target())
    assert (scaled == 0).all()


@check("tvm_ffi", "torch")
def cascade_is_one_level():
    torch, dense = setup()
    import parbake

    shared, own, page_size = 32, [20, 1, 47], 16
    lens = [shared + n for n in own]
    pages = dense.Pages(lens, page_size, 2, 64, 64, torch.float16, Setup.device)
    # The first pages of all requests hold the same.
    first = pages.indptr[:-1].long()
    for i in range(shared // page_size):
        pages.indices[first + i] = pages.indices[i].item()
    token = torch.arange(shared, device=Setup.device)
    begins = dense.indptr(lens, Setup.device)[:-1].long()
    for b in begins[1:].tolist():
        pages.k[b + token], pages.v[b + token] = pages.k[token], pages.v[token]
    keep = torch.cat([torch.arange(a + shared // page_size, b) for a, b in zip(pages.indptr.tolist(), pages.indptr[1:].tolist())])
    own_indices = pages.indices[keep.to(Setup.device)]
    own_indptr = dense.indptr([-(-n // page_size) for n in own], Setup.device)
    last = torch.tensor([(n - 1) % page_size + 1 for n in own], dtype=torch.int32, device=Setup.device)
    level = lambda *x: torch.tensor(x, dtype=torch.int32, device=Setup.device)  # noqa: E731
    k_shared, v_shared = pages.k[:shared], pages.v[:shared]
    for qo_lens, causal in (([1, 1, 1], False), ([3, 1, 5], True)):
        q, tokens = queries(torch, sum(qo_lens), 4), sum(qo_lens)
        want = dense.batch(q, pages.k, pages.v, qo_lens, lens, causal=causal)
        wrapper = parbake.MultiLevelCascadeAttentionWrapper(2, workspace(torch), **target())
        wrapper.plan(
            [level(0, tokens), dense.indptr(qo_lens, Setup.device)],
            [level(0, shared // page_size), own_indptr],
            [pages.indices[: shared // page_size], own_indices],
            [level(page_size), last],
            4,
            2,
            64,
            page_size,
            causal=causal,
        )
        near(wrapper.run(q, pages.cache()), None, want, qo_lens)
        prefill = parbake.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(workspace(torch), **target())
        prefill.begin_forward(dense.indptr(qo_lens, Setup.device), own_indptr, own_indices, last, 4, 2, 64, page_size)
        near(prefill.forward(q, k_shared, v_shared, pages.cache(), causal=causal), None, want)
        if not causal:
            decode = parbake.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(workspace(torch), "HND", **target())
            decode.begin_forward(own_indptr, own_indices, last, 4, 2, 64, page_size)
            near(decode.forward(q, *(x.transpose(0, 1) for x in (k_shared, v_shared)), pages.cache("HND", False)), None, want)


@check("tvm_ffi", "torch")
def blocks_are_a_mask():
    torch, dense = setup()
    import parbake

    rows, columns, r, c = 3, 4, 5, 16
    there = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.bool)
    q, k, v = queries(torch, rows * r, 4), queries(torch, columns * c, 2), queries(torch, columns * c, 2)
    mask = there.repeat_interleave(r, 0).repeat_interleave(c, 1).to(Setup.device)
    wrapper = parbake.BlockSparseAttentionWrapper(workspace(torch), **target())
    indices = there.nonzero()[:, 1].int()
    wrapper.plan(dense.indptr(there.sum(1).tolist()), indices, rows * r, columns * c, r, c, 4, 2, 64)
    near(*wrapper.run(q, k, v, return_lse=True), dense.attention(q, k, v, mask=mask))
    near(wrapper.run(q, k, v, 0.5, 2.0, 1.0), None, dense.attention(q, k, v, mask=mask))


@check("tvm_ffi", "torch")
def blocks_of_any_size_are_a_mask():
    torch, dense = setup()
    import parbake

    for group in (1, 3):
        there = torch.tensor([[[1, 0, 1], [0, 0, 0]], [[0, 1, 0], [1, 1, 1]]], dtype=torch.bool)
        row, column = torch.tensor([[4, 9], [12, 1]]).int(), torch.tensor([[20, 5, 0], [1, 17, 7]]).int()
        q, k, v = (torch.randn(h, n, 64, device=Setup.device).half() for h, n in ((2 * group, 13), (2, 25), (2, 25)))
        wrapper = parbake.VariableBlockSparseAttentionWrapper(workspace(torch), **target())
        wrapper.plan(there, row, column, 2 * group, 2, 64)
        o, lse = wrapper.run(q, k, v, return_lse=True)
        out = torch.empty_like(q)
        assert wrapper.run(q, k, v, out=out) is out and torch.equal(out, o) and o.shape == q.shape
        for head in range(2):
            mask = there[head].repeat_interleave(row[head], 0).repeat_interleave(column[head], 1).to(Setup.device)
            of = slice(head * group, (head + 1) * group)
            want = dense.attention(q[of].transpose(0, 1), k[head][:, None], v[head][:, None], mask=mask)
            near(o[of].transpose(0, 1), lse[of].T, want, (group, head))


@check("tvm_ffi", "torch")
def batches_of_any_requests():
    torch, dense = setup()
    import parbake

    pages = dense.Pages(KV_LENS, 16, 2, 64, 64, torch.float16, Setup.device)
    begins, q, sinks = dense.indptr(QO_LENS, Setup.device), queries(torch, sum(QO_LENS), 4), torch.randn(4, device=Setup.device)
    wrapper = parbake.BatchAttention("HND", Setup.device, **target())
    wrapper.plan(begins, *pages.batch[:2], pages.lens, 4, 2, 64, 64, 16, causal=True)
    want = dense.batch(q, pages.k, pages.v, QO_LENS, KV_LENS, causal=True)
    near(*wrapper.run(q, pages.cache("HND"), logits_soft_cap=0.0), want)
    how = {"head_dim_qk": 64, "head_dim_vo": 64, "q_data_type": "float16", "kv_data_type": "float16", "window_left": 6}
    wrapper = parbake.BatchAttentionWithAttentionSinkWrapper(workspace(torch), **how, **target())
    wrapper.plan(begins, *pages.batch, 4, 2, 64, 16, causal=True)
    want = dense.batch(q, pages.k, pages.v, QO_LENS, KV_LENS, causal=True, window=6, sinks=sinks, scale=0.2)
    near(*wrapper.run(q, pages.cache(), sinks, 0.2, return_lse=True), want)


@check("tvm_ffi", "torch")
def buffers_of_a_graph_stay():
    """What a captured launch reads is where it was, whatever is planned; on a GPU a graph is replayed."""
    torch, dense = setup()
    import parbake

    integers = lambda n: torch.zeros(n, dtype=torch.int32, device=Setup.device)  # noqa: E731
    q = queries(torch, 3, 4)
    buffers = integers(4), integers(64), integers(3)
    wrapper = parbake.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace(torch), *buffers, **target())
    assert wrapper.is_cuda_graph_enabled
    batches = [([5, 0, 16], 0), ([130, 40, 1], 1), ([0, 0, 3], 2)]
    cache = tuple(torch.empty(40, 16, 2, 64, dtype=torch.float16, device=Setup.device) for _ in range(2))
    out, graph, places = torch.empty_like(q), None, None
    for lens, seed in batches:
        pages = dense.Pages(lens, 16, 2, 64, 64, torch.float16, Setup.device, seed=seed)
        for whole, part in zip(cache, pages.cache()):
            whole[: len(part)] = part
        wrapper.plan(*pages.batch, 4, 2, 64, 16)
        now = [x.data_ptr() for x in (wrapper._plan, wrapper._kv_indptr, wrapper._kv_indices, wrapper._kv_last_page_len)]
        assert places in (None, now) and now[1:] == [x.data_ptr() for x in buffers]
        places = now
        if Setup.device == "cpu":
            wrapper.run(q, cache, out=out)
        elif graph is None:
            wrapper.run(q, cache, out=out)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                wrapper.run(q, cache, out=out)
        if graph is not None:
            graph.replay()
        near(out, None, dense.batch(q, pages.k, pages.v, [1] * 3, lens), lens)
    # As many queries as the first batch had, or fewer.
    buffers = integers(3), integers(3), integers(64), integers(2)
    wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(workspace(torch), "NHD", True, *buffers, **target())
    for qo_lens, kv_lens in (([40, 3], [50, 20]), ([1, 2], [3, 70]), ([0, 43], [0, 43])):
        pages = dense.Pages(kv_lens, 16, 2, 64, 64, torch.float16, Setup.device)
        q = queries(torch, sum(qo_lens), 4)
        wrapper.plan(dense.indptr(qo_lens, Setup.device), *pages.batch, 4, 2, 64, 16, causal=True, num_tokens=sum(qo_lens))
        wide = torch.zeros(43, 4, 64, device=Setup.device).half()
        wide[: len(q)] = q
        o = wrapper.run(wide, pages.cache())
        near(o[: len(q)], None, dense.batch(q, pages.k, pages.v, qo_lens, kv_lens, causal=True), qo_lens)
    refused(ValueError, "qo_indptr: expected at most 43", lambda: wrapper.plan(
        dense.indptr([40, 4]), *pages.batch, 4, 2, 64, 16))  # fmt: skip


@check("tvm_ffi", "torch")
def pieces_of_one_size_do_not_depend_on_the_batch():
    torch, dense = setup()
    import parbake

    lens, qo_lens = [700, 90, 320], [3, 40, 5]
    pages = dense.Pages(lens, 16, 2, 64, 64, torch.float16, Setup.device)
    q = queries(torch, sum(qo_lens), 4)
    room = workspace(torch)
    for how in ({"fixed_split_size": 8}, {"disable_split_kv": True}):
        wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(room, **target())
        wrapper.plan(dense.indptr(qo_lens), *pages.batch, 4, 2, 64, 16, causal=True, **how)
        whole = wrapper.run(q, pages.cache())
        near(whole, None, dense.batch(q, pages.k, pages.v, qo_lens, lens, causal=True), how)
        begin = 0
        for i, n in enumerate(qo_lens):
            begins = pages.indptr[i : i + 2]
            mine = pages.indices[begins[0] : begins[1]]
            wrapper.plan(dense.indptr([n]), begins - begins[0], mine, pages.last[i : i + 1], 4, 2, 64, 16, causal=True, **how)
            alone = wrapper.run(q[begin : begin + n], pages.cache())
            assert torch.equal(alone, whole[begin : begin + n]), (how, i)
            begin += n


@check("tvm_ffi", "torch")
def modified_scores():
    torch, dense = setup()
    import parbake
    from parbake._attention import score

    pages = dense.Pages(KV_LENS, 16, 2, 64, 64, torch.float16, Setup.device)
    begins, q = dense.indptr(QO_LENS, Setup.device), queries(torch, sum(QO_LENS), 4)
    wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(workspace(torch), **target())
    masks = [torch.rand(n, m, device=Setup.device) < 0.6 for n, m in zip(QO_LENS, KV_LENS)]
    flat = torch.cat([m.reshape(-1) for m in masks])
    slopes = score.alibi_slopes(4, torch.device(Setup.device))
    cases = (
        ("mask", "custom_mask", {"custom_mask": flat}, {"mask": masks}),
        ("logits_soft_cap", "logits_soft_cap", {"logits_soft_cap": 2.0, "causal": True}, {"soft_cap": 2.0, "causal": True}),
        ("rope_theta", "pos_encoding_mode", {"pos_encoding_mode": "ROPE_LLAMA", "causal": True}, {"rope": (1.0, 1e4), "causal": True}),
        ("alibi_slopes", "pos_encoding_mode", {"pos_encoding_mode": "ALIBI", "causal": True}, {"slopes": slopes, "causal": True}),
    )  # fmt: skip
    for taken, argument, how, reference in cases:
        call = lambda: wrapper.plan(begins, *pages.batch, 4, 2, 64, 16, **how)  # noqa: B023, E731
        if taken not in score._TAKEN:
            refused(NotImplementedError, f"{argument}: expected nothing", call)
            continue
        call()
        want = dense.batch(q, pages.k, pages.v, QO_LENS, KV_LENS, **reference)
        near(*wrapper.run(q, pages.cache(), return_lse=True), want, argument)
    refused(ValueError, "pos_encoding_mode: expected", lambda: wrapper.plan(
        begins, *pages.batch, 4, 2, 64, 16, pos_encoding_mode="SINE"))  # fmt: skip
    six = score.alibi_slopes(6, torch.device("cpu"))
    assert torch.allclose(six, torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]))


@check("tvm_ffi", "torch")
def scores_of_ones_own():
    torch, dense = setup()
    import parbake
    from parbake.attention import ScoreVariant

    pages = dense.Pages(KV_LENS, 16, 2, 64, 64, torch.float16, Setup.device)
    begins, q = dense.indptr(QO_LENS, Setup.device), queries(torch, sum(QO_LENS), 4)
    cap = ScoreVariant("return cap * tanhf(x / cap);", params={"cap": "f32"}, name="soft_cap")
    wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(workspace(torch), **target())
    wrapper.plan(begins, *pages.batch, 4, 2, 64, 16, causal=True)
    # The values are those of each run.
    for value in (2.0, 0.5):
        want = dense.batch(q, pages.k, pages.v, QO_LENS, KV_LENS, soft_cap=value, causal=True)
        near(*wrapper.run(q, pages.cache(), return_lse=True, score=cap.given(cap=value)), want, value)
    near(*wrapper.run(q, pages.cache(), return_lse=True), dense.batch(q, pages.k, pages.v, QO_LENS, KV_LENS, causal=True))
    wrapper.plan(begins, *pages.batch, 4, 2, 64, 16, logits_soft_cap=1.0)
    refused(ValueError, "score: expected none beside logits_soft_cap", lambda: wrapper.run(q, pages.cache(), score=cap.given(cap=1.0)))
    decode = parbake.BatchDecodeWithPagedKVCacheWrapper(workspace(torch), **target())
    decode.plan(*pages.batch, 4, 2, 64, 16)
    one = queries(torch, len(KV_LENS), 4)
    want = dense.batch(one, pages.k, pages.v, [1] * len(KV_LENS), KV_LENS, soft_cap=2.0)
    near(*decode.run(one, pages.cache(), return_lse=True, score=cap.given(cap=2.0)), want, "decode")
    k, v = queries(torch, 24, 2), queries(torch, 24, 2)
    want = dense.attention(q[:9], k, v, soft_cap=2.0, causal=True)
    how = {"causal": True, "score": cap.given(cap=2.0), "return_lse": True}
    near(*parbake.single_prefill_with_kv_cache(q[:9], k, v, **how, **target()), want, "single")
    ragged = parbake.BatchPrefillWithRaggedKVCacheWrapper(workspace(torch), **target())
    ragged.plan(dense.indptr([4, 5], Setup.device), dense.indptr([10, 14], Setup.device), 4, 2, 64)
    want = dense.batch(q[:9], k, v, [4, 5], [10, 14], soft_cap=2.0)
    near(*ragged.run(q[:9], k, v, score=cap.given(cap=2.0), return_lse=True), want, "ragged")


@check("tvm_ffi", "torch")
def masks_within_blocks_and_of_one_request():
    torch, dense = setup()
    import parbake

    there = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=torch.bool)
    q, k, v = queries(torch, 10, 4), queries(torch, 24, 2), queries(torch, 24, 2)
    mask = torch.rand(10, 24) < 0.6
    # The blocks that are there, row by row.
    inner = mask.view(2, 5, 3, 8).transpose(1, 2)[there]
    seen = mask & there.repeat_interleave(5, 0).repeat_interleave(8, 1)
    wrapper = parbake.BlockSparseAttentionWrapper(workspace(torch), **target())
    wrapper.plan(dense.indptr([2, 1]), there.nonzero()[:, 1].int(), 10, 24, 5, 8, 4, 2, 64, mask=inner)
    near(*wrapper.run(q, k, v, return_lse=True), dense.attention(q, k, v, mask=seen.to(Setup.device)))
    mask = mask.to(Setup.device)
    want = dense.attention(q, k, v, mask=mask)
    packed = parbake.packbits(mask.reshape(-1), "little", **target())
    for how in ({"custom_mask": mask}, {"packed_custom_mask": packed}):
        near(*parbake.single_prefill_with_kv_cache(q, k, v, **how, return_lse=True, **target()), want)


@check("tvm_ffi", "torch")
def keys_of_8_bits():
    torch, dense = setup()
    import parbake

    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        pages = dense.Pages(KV_LENS, 16, 2, 64, 64, torch.float16, Setup.device)
        cache = [x.to(kind) for x in pages.cache()]
        wrapper = parbake.BatchDecodeWithPagedKVCacheWrapper(workspace(torch), **target())
        wrapper.plan(*pages.batch, 8, 2, 64, 16, q_data_type="float16", kv_data_type=kind)
        q = queries(torch, len(KV_LENS), 8)
        k, v = (x.to(kind).half() for x in (pages.k, pages.v))
        want = dense.batch(q, k, v, [1] * len(KV_LENS), KV_LENS, scale=0.5 * 64**-0.5)
        o, lse = wrapper.run(q, cache, k_scale=0.5, v_scale=2.0, return_lse=True)
        near(o / 2, lse, want, kind)


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing was refused: {words}")


@check("tvm_ffi", "torch")
def mistakes_are_named():
    torch, dense = setup()
    import parbake

    pages = dense.Pages([20, 5], 16, 2, 64, 64, torch.float16, Setup.device)
    room, cache, q = workspace(torch), pages.cache(), queries(torch, 2, 4)
    make = lambda room=room, **how: parbake.BatchDecodeWithPagedKVCacheWrapper(room, **how, **target())  # noqa: E731
    shape = 4, 2, 64, 16
    refused(ValueError, 'kv_layout: expected "NHD" or "HND"', lambda: make(kv_layout="NDH"))
    refused(NotImplementedError, "jit_args: expected nothing", lambda: make(jit_args=[1]))
    refused(TypeError, "float_workspace_buffer: expected a tensor", lambda: make(None))
    refused(TypeError, "paged_kv_last_page_len_buffer: expected a tensor", lambda: make(use_cuda_graph=True))
    wrapper = make()
    refused(ValueError, "plan: expected to be called before run", lambda: wrapper.run(q, cache))
    refused(ValueError, "num_qo_heads: expected a multiple of num_kv_heads = 2, got 5", lambda: wrapper.plan(
        *pages.batch, 5, 2, 64, 16))  # fmt: skip
    refused(TypeError, "indptr: expected int32", lambda: wrapper.plan(pages.indptr.float(), *pages.batch[1:], *shape))
    refused(ValueError, "last_page_len: expected [2], got [1]", lambda: wrapper.plan(*pages.batch[:2], pages.last[:1], *shape))
    refused(ValueError, "fixed_split_size: expected at least 1", lambda: wrapper.plan(*pages.batch, *shape, fixed_split_size=0))
    refused(TypeError, "q_data_type: expected an element type", lambda: wrapper.plan(*pages.batch, *shape, q_data_type="half16"))
    refused(NotImplementedError, "o_data_type: expected", lambda: wrapper.plan(
        *pages.batch, *shape, q_data_type="float16", o_data_type="bfloat16"))  # fmt: skip
    wrapper.plan(*pages.batch, *shape, q_data_type=torch.float16)
    out = torch.full_like(q, 7.0)
    run = lambda *given, **how: (lambda: wrapper.run(*given, out=out, **how))  # noqa: E731
    refused(ValueError, "q: expected 2 queries, as the plan, got 1", run(q[:1], cache))
    refused(ValueError, "q: expected [.., 4, 64], as the plan, got [2, 2, 64]", run(q[:, :2], cache))
    refused(TypeError, "q: expected torch.float16, as the plan, got torch.bfloat16", run(q.bfloat16(), cache))
    refused(ValueError, "k: expected [.., 16, 2, 64], as the plan", run(q, (cache[0][:, :8], cache[1])))
    refused(ValueError, "window_left: expected -1, as the plan, got 3", run(q, cache, window_left=3))
    refused(TypeError, "k_scale: expected a number, got Tensor", run(q, cache, k_scale=torch.ones(1)))
    refused(NotImplementedError, "kv_cache_sf: expected nothing", run(q, cache, kv_cache_sf=torch.ones(1)))
    refused(TypeError, "k: ", run(q, (cache[0].float(), cache[1].float())))
    refused(ValueError, "q: ", run(q.transpose(1, 2).contiguous().transpose(1, 2), cache))
    refused(TypeError, "sinks: ", run(q, cache, sinks=torch.ones(4, dtype=torch.float64, device=Setup.device)))
    assert (out == 7).all()
    if Setup.device == "cuda":
        refused(ValueError, "k: ", run(q, tuple(x.cpu() for x in cache)))
    small = make(room[:4096])
    small.plan(*pages.batch, *shape)
    refused(ValueError, "float_workspace_buffer: expected at least", lambda: small.run(q, cache))
    wrapper = parbake.BatchPrefillWithPagedKVCacheWrapper(room, **target())
    wrapper.plan(dense.indptr([4, 4]), *pages.batch, *shape)
    refused(ValueError, "q: expected at least 8 queries, as the plan, got 2", lambda: wrapper.run(q, cache))
    refused(NotImplementedError, "prefix_len_ptr: expected nothing", lambda: wrapper.plan(
        dense.indptr([4, 4]), *pages.batch, *shape, prefix_len_ptr=pages.last))  # fmt: skip
    refused(ValueError, "paged_kv_indptr: expected [3], as qo_indptr", lambda: wrapper.plan(
        dense.indptr([4, 4]), pages.indptr[:2], *pages.batch[1:], *shape))  # fmt: skip
    blocks = parbake.BlockSparseAttentionWrapper(room, **target())
    refused(ValueError, "M: expected a multiple of R = 4, got 10", lambda: blocks.plan(
        pages.indptr, pages.indices, 10, 32, 4, 16, 4, 2, 64))  # fmt: skip


@check("tvm_ffi", "torch")
def the_workspace_is_enough():
    """The size that is said, and not much more than what the kernel asks for, whatever the tile."""
    torch, dense = setup()
    import parbake

    for dims in ((64, 64), (192, 128), (256, 256)):
        for qo_len in (1, 5, 20, 100):
            q, k = queries(torch, qo_len, 4, dims[0]), queries(torch, 8, 1, dims[0])
            v = queries(torch, 8, 1, dims[1])
            wrapper = parbake.BatchPrefillWithRaggedKVCacheWrapper(workspace(torch, dims[1]), **target())
            wrapper.plan(dense.indptr([qo_len]), dense.indptr([8]), 4, 1, *dims)
            near(wrapper.run(q, k, v), None, dense.attention(q, k, v), (dims, qo_len))


@check("flashinfer")
def signatures_are_those_of_flashinfer():
    """Names, in order; ours may have more behind them."""
    import inspect

    import flashinfer
    import parbake
    from parbake._ops import WRAPPERS

    for name in WRAPPERS:
        theirs, ours = getattr(flashinfer, name, None), getattr(parbake, name)
        if theirs is None or not inspect.isclass(ours):
            continue
        for method in ("__init__", "plan", "run", "begin_forward", "forward", "end_forward", "reset_workspace_buffer"):
            if not hasattr(theirs, method):
                continue
            kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            expected = [p.name for p in inspect.signature(getattr(theirs, method)).parameters.values() if p.kind not in kinds]
            got = inspect.signature(getattr(ours, method)).parameters
            if not any(p.kind in kinds for p in got.values()):
                assert [n for n in got if n in expected] == expected, (name, method)
