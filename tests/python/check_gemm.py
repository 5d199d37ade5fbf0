"""Products of matrices against float64: shapes, layouts, factors, groups, pieces along k, what is refused."""

from harness import Setup, check

# Of an output: what rounding to it costs at most, as a share.
HALF_ULP = {"torch.bfloat16": 2.0**-8, "torch.float16": 2.0**-11, "torch.float32": 2.0**-24}


def setup():
    import torch

    import parbake

    torch.manual_seed(6)
    return torch, parbake, ({"target": "host"} if Setup.device == "cpu" else {})


def near(torch, got, want, size, narrow=False):
    """Each element to half an ulp, and a share of the sum `size` of what was added up, without signs. Tensor cores add
    products of 8 bits up with fewer digits than f32 has.
    """
    assert got.shape == want.shape and not got.isnan().any(), got
    bound = 1.01 * HALF_ULP[str(got.dtype)] * want.abs() + (5e-4 if narrow and Setup.device == "cuda" else 1e-5) * size + 1e-7
    off = (got.double() - want).abs() - bound
    assert off.numel() == 0 or off.max() <= 0, (off.max().item(), got.shape)


def padded(torch, x, by_columns=False, offset=8):
    """The same elements within NaN: behind each row (or column), before the first and behind the last one."""
    if by_columns:
        return padded(torch, x.mT.contiguous(), offset=offset).mT
    *outer, rows, columns = x.shape
    whole = torch.full((*outer, rows + 2, columns + 2 * offset), torch.nan, device=x.device).to(x.dtype)
    view = whole[..., 1 : rows + 1, offset : offset + columns]
    view.copy_(x)
    return view


def products(torch, a, b):
    """a bᵀ in float64, and the same without signs."""
    a, b = a.double(), b.double()
    return a @ b.mT, a.abs() @ b.abs().mT


def randn(torch, *shape, dtype=None):
    return torch.randn(*shape, device=Setup.device).to(dtype or torch.float32)


def activated(torch, x, name):
    f = torch.nn.functional
    return {"none": lambda x: x, "silu": f.silu, "gelu": f.gelu, "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"), "relu": f.relu}[
        name
    ](x)


@check("tvm_ffi", "torch")
def shapes_and_layouts():
    """M, N and K of 0, 1, odd and prime; both layouts of b; rows that lie apart, with NaN between them."""
    torch, parbake, where = setup()
    sizes = [(0, 5, 8), (5, 0, 8), (5, 3, 0), (1, 1, 1), (1, 64, 64), (3, 5, 7), (17, 131, 72), (37, 97, 101), (130, 260, 264)]
    for turn, (m, n, k) in enumerate(sizes):
        dtype = (torch.bfloat16, torch.float16)[turn % 2]
        a, b = randn(torch, m, k, dtype=dtype), randn(torch, n, k, dtype=dtype)
        bias = randn(torch, n, dtype=dtype)
        for by_columns in (False, True):
            x, y = padded(torch, a, offset=8 if turn % 3 else 3), padded(torch, b, by_columns)
            whole = torch.full((m + 1, n + 5), torch.nan, device=a.device).to(dtype)
            out = parbake.mm_bf16(x, y.T, bias, out=whole[:m, 4 : n + 4], **where)
            want, size = products(torch, a, b)
            near(torch, out, want + bias.double(), size)
            assert whole[m].isnan().all() and whole[:, :4].isnan().all() and whole[:, n + 4 :].isnan().all()
            assert torch.equal(parbake.mm(x, y, bias, out_dtype=dtype, **where), out)
            near(torch, parbake.mm_bf16(x, y.T, out_dtype=torch.float32, **where), want, size)


@check("tvm_ffi", "torch")
def activations():
    torch, parbake, where = setup()
    a, b = randn(torch, 9, 72, dtype=torch.bfloat16), randn(torch, 33, 72, dtype=torch.bfloat16) / 8
    bias = randn(torch, 33)
    want, size = products(torch, a, b)
    for name in ("silu", "gelu", "gelu_tanh", "relu"):
        out = parbake.mm(a, b, bias, activation=name, out_dtype="f32", **where)
        near(torch, out, activated(torch, want + bias.double(), name), size + 1)


@check("tvm_ffi", "torch")
def batches():
    """Batches that are views: heads of a projection, one matrix for all, in reverse."""
    torch, parbake, where = setup()
    for batch, m, n, k in [(0, 3, 4, 8), (1, 5, 24, 40), (3, 17, 40, 64), (5, 1, 7, 13)]:
        a = padded(torch, randn(torch, batch, m, k, dtype=torch.bfloat16))
        heads = randn(torch, m, batch, k, dtype=torch.bfloat16).transpose(0, 1)
        for b in (randn(torch, batch, n, k, dtype=torch.bfloat16), randn(torch, 1, n, k, dtype=torch.bfloat16).expand(batch, n, k)):
            for x in (a, heads):
                near(torch, parbake.bmm_bf16(x, b.mT, **where), *products(torch, x, b))
            out = torch.full((m, batch, n + 2), torch.nan, device=a.device).bfloat16()
            parbake.bmm_bf16(a, b.mT.contiguous(), out.transpose(0, 1)[..., :n], **where)
            near(torch, out.transpose(0, 1)[..., :n], *products(torch, a, b))
            assert out[..., n:].isnan().all()


def eight(torch, *shape, dtype=None):
    return randn(torch, *shape).to(dtype or torch.float8_e4m3fn)


@check("tvm_ffi", "torch")
def eight_bits_with_one_factor():
    torch, parbake, where = setup()
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    one = lambda x: torch.tensor([x], device=Setup.device)  # noqa: E731
    for (batch, m, n, k), types in [((2, 3, 40, 144), (e4m3, e4m3)), ((1, 65, 33, 31), (e4m3, e5m2)), ((3, 16, 17, 64), (e5m2, e4m3))]:
        a, b = eight(torch, batch, m, k, dtype=types[0]), eight(torch, batch, n, k, dtype=types[1])
        want, size = products(torch, a.float(), b.float())
        out = parbake.bmm_fp8(a, b.mT, one(0.25), one(3.0)[0], torch.bfloat16, **where)
        near(torch, out, 0.75 * want, size, True)
        # Columns that lie side by side are taken too.
        rows = b.view(torch.uint8).mT.contiguous().view(types[1])
        assert torch.equal(parbake.bmm_fp8(a, rows, one(0.25), one(3.0), torch.bfloat16, **where), out)


@check("tvm_ffi", "torch")
def factors_of_rows_and_columns():
    torch, parbake, where = setup()
    for m, n, k in [(1, 40, 64), (19, 131, 200), (67, 9, 16)]:
        for dtype in (torch.bfloat16, torch.float8_e4m3fn):
            a, b = randn(torch, m, k).to(dtype), randn(torch, n, k).to(dtype)
            sa, sb = 1 + torch.rand(m, device=a.device), 1 + torch.rand(n, device=a.device)
            want, size = products(torch, a.float(), b.float())
            scale = sa[:, None].double() * sb.double()
            narrow = dtype == torch.float8_e4m3fn
            out = parbake.mm(a, b, a_scale=sa, b_scale=sb, out_dtype="bf16", **where)
            near(torch, out, want * scale, size * scale, narrow)
            out = parbake.mm(a, b, a_scale=sa[0], b_scale=sb, out_dtype=torch.float32, **where)
            near(torch, out, want * sa[0].double() * sb.double(), 4 * size, narrow)


def whole_numbers(torch, *shape):
    """Which 8 bits hold, and whose sums f32 holds."""
    return torch.randint(-3, 4, shape, device=Setup.device).float()


def spread(scale, rows, columns, each=128):
    """Factors of `each` rows by 128 columns, for every element."""
    return scale.double().repeat_interleave(each, -2)[..., :rows, :].repeat_interleave(128, -1)[..., :columns]


def distinct(torch, *shape):
    """No two alike, and small powers of two apart, so that nothing is rounded."""
    count = 1
    for extent in shape:
        count *= extent
    return (1 + torch.randperm(count, device=Setup.device).float() % 61).view(shape)


@check("tvm_ffi", "torch")
def factors_of_blocks_are_exact():
    """A factor of another block would show in every digit."""
    torch, parbake, where = setup()
    for m, n, k in [(1, 128, 128), (5, 130, 272), (131, 257, 400), (3, 7, 5), (0, 9, 128), (130, 260, 1024)]:
        a, b = whole_numbers(torch, m, k), whole_numbers(torch, n, k)
        blocks = [-(-x // 128) for x in (m, n, k)]
        for rows, each in ((m, 1), (blocks[0], 128)):
            sa, sb = distinct(torch, rows, blocks[2]), distinct(torch, blocks[1], blocks[2])
            want = (a.double() * spread(sa, m, k, each)) @ (b.double() * spread(sb, n, k)).T
            assert want.numel() == 0 or want.abs().max() < 2**24
            q, w = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
            mnk = (each, 128, 128)
            run = parbake.gemm_fp8_nt_groupwise
            out = run(q, w, sa, sb, "K", 1, mnk, out_dtype=torch.float32, **where)
            assert torch.equal(out.double(), want), (m, n, k, each)
            turned = run(q, w, sa.T.contiguous(), sb.T.contiguous(), "MN", 1, mnk, out_dtype=torch.float32, **where)
            assert torch.equal(turned, out)
        blockwise = parbake.gemm_fp8_nt_blockscaled(q, w, sa, sb, "K", out_dtype=torch.float32, **where)
        assert torch.equal(blockwise, out)
        assert parbake.gemm_fp8_nt_blockscaled(q, w, sa.T, sb.T, **where).dtype == torch.bfloat16


@check("tvm_ffi", "torch")
def quantised_on_the_way():
    """The same bits as from what was quantised before, on either side."""
    torch, parbake, where = setup()
    run = parbake.fp8_blockscale_gemm_sm90
    x, w = randn(torch, 5, 272, dtype=torch.bfloat16), randn(torch, 136, 272, dtype=torch.bfloat16)
    q, sq = parbake.fp8_quantize_per_token_group(x, out_dtype="e4m3", scale_dtype="f32", **where)
    v, sv = parbake.fp8_quantize_per_block(w, out_dtype="e4m3", **where)
    want, _ = products(torch, x, w)
    out = run(q, v, sq, sv, **where)
    assert out.dtype == torch.bfloat16 and (out.double() - want).norm() < 0.05 * want.norm()
    for given in ((x, v, None, sv), (q, w, sq, None), (x, w, None, None)):
        assert torch.equal(run(*given, **where), out)


@check("tvm_ffi", "torch")
def pieces_along_k():
    """Products of few rows and long sums: the same from one piece and from many, twice the same bits, tickets that are
    zeros again, and room that held NaN.
    """
    torch, parbake, where = setup()
    for dtype, (batch, m, n, k) in [(torch.bfloat16, (1, 3, 130, 4104)), (torch.float8_e4m3fn, (2, 16, 65, 6000))]:
        a, b = randn(torch, batch, m, k).to(dtype), randn(torch, batch, n, k).to(dtype)
        partial = torch.full((1 << 18,), torch.nan, device=a.device)
        tickets = torch.zeros(300, dtype=torch.int32, device=a.device)
        want, size = products(torch, a.float(), b.float())
        first = None
        for _ in range(3):
            out = parbake.bmm(a, b, partial, tickets, out_dtype="f32", processors=132, **where)
            near(torch, out, want, size, dtype != torch.bfloat16)
            assert not partial.isnan().all(), "it was not cut"
            assert (tickets == 0).all()
            assert first is None or torch.equal(out, first)
            first = out
            partial.fill_(torch.nan)
        near(torch, parbake.bmm(a, b, out_dtype="f32", **where), want, size, dtype != torch.bfloat16)
        near(torch, parbake.mm(a[0], b[0], out_dtype="f32", **where), want[0], size[0], dtype != torch.bfloat16)


def segments(torch, lens, k, dtype, behind=3):
    """Rows of groups one after the other, and some behind that are of none and hold NaN; where groups begin."""
    rows = sum(lens)
    x = torch.full((rows + behind, k), torch.nan, device=Setup.device)
    x[:rows] = torch.randn(rows, k, device=Setup.device)
    return x.to(dtype), torch.tensor([0, *lens], device=Setup.device).cumsum(0).int()


# Groups with no rows, with one, with all; more than a tile has.
LENS = [[0, 0, 5], [1, 0, 1, 70], [0, 37, 0, 0], [3, 130, 20, 0, 9], [], [0]]


@check("tvm_ffi", "torch")
def groups_one_after_the_other():
    torch, parbake, where = setup()
    for turn, lens in enumerate(LENS):
        n, k = ((40, 64), (33, 72), (136, 24), (7, 11))[turn % 4]
        dtype = (torch.bfloat16, torch.float16)[turn % 2]
        x, indptr = segments(torch, lens, k, dtype)
        b = randn(torch, len(lens), n, k, dtype=dtype)
        out = torch.full((len(x), n), 7.0, device=x.device).to(dtype)
        assert parbake.grouped_mm_bf16(x, b, indptr, out, **where) is out
        for g, (begin, end) in enumerate(zip(indptr.tolist(), indptr.tolist()[1:])):
            near(torch, out[begin:end], *products(torch, x[begin:end], b[g]))
        assert (out[sum(lens) :] == 7).all(), "rows of no group were written"
        wide = parbake.grouped_mm_bf16(x, b.mT.contiguous().mT, indptr, out_dtype=torch.float32, **where)
        for g, (begin, end) in enumerate(zip(indptr.tolist(), indptr.tolist()[1:])):
            near(torch, wide[begin:end], *products(torch, x[begin:end], b[g]))


@check("tvm_ffi", "torch")
def groups_of_8_bits_are_exact():
    """Contiguous, by the group of each row, and masked; blocks with factors of their own; NaN where no row is."""
    torch, parbake, where = setup()
    lens, n, k = [0, 1, 37, 0, 130], 200, 272
    groups, rows, blocks = len(lens), sum(lens), (2, 3)
    x, b = whole_numbers(torch, rows, k), whole_numbers(torch, groups, n, k)
    sa, sb = distinct(torch, rows, blocks[1]), distinct(torch, groups, *blocks)
    wide, weights = x.double() * spread(sa, rows, k, 1), b.double() * spread(sb, n, k)
    owner = torch.arange(groups, device=x.device).repeat_interleave(torch.tensor(lens, device=x.device))
    want = torch.einsum("rk,rnk->rn", wide, weights[owner])
    q, w = x.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    indptr = torch.tensor([0, *lens], device=x.device).cumsum(0).int()
    f32 = {"out_dtype": torch.float32, **where}
    out = parbake.group_gemm_fp8_nt_groupwise(q, w, sa, sb, indptr, scale_major_mode="K", **f32)
    assert torch.equal(out.double(), want)
    turned = sa.T.contiguous(), sb.mT.contiguous()
    assert torch.equal(parbake.group_gemm_fp8_nt_groupwise(q, w, *turned, indptr, **f32), out)
    alpha = torch.tensor([0.5], device=x.device)
    plain = parbake.grouped_mm_fp8(q, w, indptr, alpha, **f32)
    assert torch.equal(plain.double(), 0.5 * torch.einsum("rk,rnk->rn", x.double(), b.double()[owner]))

    # Rows in any order, and some of no group, whose elements are not numbers.
    order = torch.randperm(rows, device=x.device)
    ids = owner[order].int()
    ids[::7] = -1
    mixed = x[order].clone()
    mixed[::7] = torch.nan
    into = torch.full((rows, n), 7.0, device=x.device)
    parbake.group_deepgemm_fp8_nt_groupwise(mixed.to(torch.float8_e4m3fn), w, sa[order], sb, ids, out=into, **where)
    assert torch.equal(into[ids >= 0].double(), want[order][ids >= 0]) and (into[ids < 0] == 7).all()

    most = 131
    boxes = torch.full((groups, most, k), torch.nan, device=x.device)
    factors = torch.full((groups, most, blocks[1]), torch.nan, device=x.device)
    for g, (begin, length) in enumerate(zip(indptr.tolist(), lens)):
        boxes[g, :length], factors[g, :length] = x[begin : begin + length], sa[begin : begin + length]
    masked = torch.tensor(lens, dtype=torch.int32, device=x.device)
    for expected in (1, 40, 200):
        into = torch.full((groups, most, n), 7.0, device=x.device)
        boxed = boxes.to(torch.float8_e4m3fn), w, factors, sb, masked, expected
        parbake.batch_deepgemm_fp8_nt_groupwise(*boxed, out=into, **where)
        got = torch.cat([into[g, :length] for g, length in enumerate(lens)])
        assert torch.equal(got.double(), want)
        assert all((into[g, length:] == 7).all() for g, length in enumerate(lens))


@check("tvm_ffi", "torch")
def segments_choose_their_matrix():
    torch, parbake, where = setup()
    wrapper = parbake.SegmentGEMMWrapper(torch.empty(1, device=Setup.device), **where)
    wrapper.reset_workspace_buffer(None)
    for turn, (lens, indices, matrices) in enumerate(
        [([2, 0, 19, 1], [3, 3, 0, 3], 5), ([7, 7], None, 2), ([0, 0, 40], [1, 0, 1], 2), ([5, 4], [-1, 9], 3)]
    ):
        outputs, inputs = ((40, 64), (9, 33))[turn % 2]
        x, indptr = segments(torch, lens, inputs, torch.bfloat16)
        weights = randn(torch, matrices, outputs, inputs, dtype=torch.bfloat16)
        chosen = list(range(len(lens))) if indices is None else indices
        given = None if indices is None else torch.tensor(indices, device=x.device)
        for column_major in (True, False):
            w = weights if column_major else weights.mT.contiguous()
            out = torch.full((len(x), outputs), 7.0, device=x.device).bfloat16()
            how = [{"seg_indptr": indptr}, {"seg_lens": indptr.diff().long()}][column_major]
            wrapper.run(x, w, len(lens), column_major, out, weight_indices=given, **how)
            for (begin, end), matrix in zip(zip(indptr.tolist(), indptr.tolist()[1:]), chosen):
                if 0 <= matrix < matrices:
                    near(torch, out[begin:end], *products(torch, x[begin:end], weights[matrix]))
                else:
                    assert (out[begin:end] == 7).all()
            assert (out[sum(lens) :] == 7).all()
            assert wrapper.forward(x, w, len(lens), column_major, weight_indices=given, **how).shape == out.shape


@check("tvm_ffi", "torch")
def what_is_refused():
    torch, parbake, where = setup()
    a, b = randn(torch, 4, 128, dtype=torch.bfloat16), randn(torch, 24, 128, dtype=torch.bfloat16)
    q, w = eight(torch, 4, 256), eight(torch, 130, 256)
    sa, sb = torch.ones(4, 2, device=a.device), torch.ones(2, 2, device=a.device)
    stack, ptr = randn(torch, 2, 24, 128, dtype=torch.bfloat16), torch.tensor([0, 1, 4], dtype=torch.int32, device=a.device)
    group = parbake.gemm_fp8_nt_groupwise
    segment = parbake.SegmentGEMMWrapper(**where).run
    masked = torch.tensor([1], dtype=torch.int32, device=a.device)
    one = torch.ones(1, device=a.device)
    for kind, says, call in [
        (TypeError, "a: expected a tensor, got list", lambda: parbake.mm([1], b, **where)),
        (ValueError, "a: expected 2 dimensions", lambda: parbake.mm_bf16(a[None], b.T, **where)),
        (ValueError, "k", lambda: parbake.mm(a[:, :64], b, **where)),
        (ValueError, "activation: expected none or silu", lambda: parbake.mm(a, b, activation="tanh", **where)),
        (TypeError, "bias", lambda: parbake.mm(a, b, torch.ones(24, device=a.device), **where)),
        (ValueError, "a_scale", lambda: parbake.mm(a, b, a_scale=torch.ones(3, device=a.device), **where)),
        (ValueError, "a_scale", lambda: parbake.mm(a, b, a_scale=torch.ones(4, 2, device=a.device), **where)),
        (NotImplementedError, "results have the type", lambda: parbake.mm_bf16(a, b.T, out_dtype=torch.float16, **where)),
        (TypeError, "out_dtype", lambda: parbake.mm(a, b, out_dtype="f8", **where)),
        (ValueError, "out: expected [4, 24]", lambda: parbake.mm(a, b, out=a.new_empty(4, 23), **where)),
        (ValueError, "A: expected 3 dimensions", lambda: parbake.bmm_bf16(a, b.T, **where)),
        (TypeError, "A: expected e4m3", lambda: parbake.bmm_fp8(a[None], b.T[None], one, one, "bf16", **where)),
        (ValueError, "B_scale: expected one element", lambda: parbake.bmm_fp8(q[None], w.T[None], one, sb, "bf16", **where)),
        (ValueError, 'scale_major_mode: expected "K" or "MN"', lambda: group(q, w, sa, sb, **where)),
        (ValueError, "a_scale: expected [2, 4]", lambda: group(q, w, sa, sb, "MN", **where)),
        (ValueError, "b_scale: expected [2, 2]", lambda: group(q, w, sa, sb[:1], "K", **where)),
        (NotImplementedError, "scale_granularity_mnk", lambda: group(q, w, sa, sb, "K", 1, (1, 1, 128), **where)),
        (
            ValueError,
            "weight_scale: expected the factors of 8 bits, got None",
            lambda: parbake.fp8_blockscale_gemm_sm90(q, w, sa, **where),
        ),
        (
            ValueError,
            "input_scale: expected nothing: input is quantised here",
            lambda: parbake.fp8_blockscale_gemm_sm90(a, w, sa, sb, **where),
        ),
        (ValueError, "m_indptr: expected [3]", lambda: parbake.grouped_mm_bf16(a, stack, ptr[:2], **where)),
        (TypeError, "m_indptr", lambda: parbake.grouped_mm_bf16(a, stack, ptr.float(), **where)),
        (ValueError, "b: expected 3 dimensions", lambda: parbake.grouped_mm_bf16(a, b, ptr, **where)),
        (ValueError, "one of seg_indptr and seg_lens, got neither", lambda: segment(a, stack, 2, True)),
        (ValueError, "got both", lambda: segment(a, stack, 2, True, seg_indptr=ptr, seg_lens=ptr[1:])),
        (ValueError, "weight_indices: expected [2]", lambda: segment(a, stack, 2, True, seg_indptr=ptr, weight_indices=ptr)),
        (ValueError, "a matrix for each of 2 groups", lambda: segment(a, stack[:1], 2, True, seg_indptr=ptr)),
        (
            ValueError,
            "a: expected groups that lie",
            lambda: parbake.batch_deepgemm_fp8_nt_groupwise(
                eight(torch, 2, 6, 256)[:, :4], w[None].expand(2, -1, -1), sa.expand(2, 4, 2), sb.expand(2, 2, 2),
                masked.expand(2), 4, **where,
            ),
        ),
    ]:  # fmt: skip
        try:
            call()
        except kind as error:
            assert says in str(error), (says, str(error))
        else:
            raise AssertionError(f"nothing was refused: {says}")


@check("tvm_ffi", "torch")
def followed_by_dynamo():
    """Also where the room of cut products is made in the graph."""
    torch, parbake, where = setup()
    a, b = randn(torch, 3, 2048, dtype=torch.bfloat16), randn(torch, 40, 2048, dtype=torch.bfloat16)

    def layer(a, b):
        return parbake.mm(parbake.mm_bf16(a, b.T, **where), b.T[:64], activation="silu", **where)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(layer(a, b[:, :2048]), compiled(a, b))


@check("cuda", "torch")
def graphs_at_the_same_time():
    """Products that are cut, in graphs that run side by side, do not share their tickets; replays leave none behind."""
    torch, parbake, _ = setup()
    weights = randn(torch, 512, 8192, dtype=torch.bfloat16)
    rows = [randn(torch, 4, 8192, dtype=torch.bfloat16) for _ in range(4)]
    want = [parbake.mm_bf16(x, weights.T) for x in rows]
    graphs, outs = [torch.cuda.CUDAGraph() for _ in rows], []
    for graph, x in zip(graphs, rows):
        with torch.cuda.graph(graph):
            outs.append([parbake.mm_bf16(x, weights.T) for _ in range(8)])
    streams = [torch.cuda.Stream() for _ in rows]
    for _ in range(50):
        for graph, stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for group, expected in zip(outs, want):
        assert all(torch.equal(out, expected) for out in group)
    from parbake._gemm import workspace

    assert all((known._all == 0).all() for known in workspace._KNOWN.values())
    # As where nothing was called before the capture: the graph clears tickets of its own.
    kept = dict(workspace._KNOWN)
    workspace._KNOWN.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = parbake.mm_bf16(rows[0], weights.T)
    workspace._KNOWN.update(kept)
    for _ in range(3):
        out.zero_()
        graph.replay()
        assert torch.equal(out, want[0])
