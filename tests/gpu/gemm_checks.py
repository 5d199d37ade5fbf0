"""The checks of products of matrices. Each gives a line, or raises what is wrong."""

import importlib.util
import json
import pathlib
import sys
import traceback

import check_gemm
import harness
import torch
from attention_setup import BF16, F16, Where, name, randn
from check_gemm import distinct, near, products, segments, spread, whole_numbers

import parbake

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
CHECKS, FORCED = {}, {}


def check(body):
    CHECKS[body.__name__.replace("_", " ")] = body


def forced(op):
    """Of an op, with a tile and a path that the environment says."""

    def keep(body):
        FORCED[op] = body

    return keep


def has_it(call):
    """What it gives; None if the call does not have the tactic that is forced."""
    try:
        return call()
    except Exception as error:
        if "PB-2220" not in str(error):
            raise
        return None


def gpu(on_gpu, on_host):
    return on_host if Where.host else on_gpu


def run(part, only, done):
    harness.Setup.device = Where.device
    forced_op = part.removeprefix("forced ").partition(":")[0] if part.startswith("forced") else None
    for title, body in (CHECKS if forced_op is None else {FORCED[forced_op].__name__: FORCED[forced_op]}).items():
        if only not in title or title in done:
            continue
        Where.say(begin=title)
        try:
            Where.say(end=title, ok=True, detail=str(body()))
        except Exception as error:
            traceback.print_exc()
            Where.say(end=title, ok=False, detail=(str(error).splitlines() or [type(error).__name__])[0])
        if not Where.host:
            torch.cuda.empty_cache()


def add(body):
    def whole():
        body()
        return "as on the host target"

    whole.__name__ = body.__name__
    check(whole)


for module_name, needs, body in harness.CHECKS:
    # What a forced tactic or the host lacks is not asked of it.
    if module_name.startswith("gemm ") and "cuda" not in needs:
        add(body)


def identity(n, dtype):
    return torch.eye(n, device=Where.device).to(dtype)


def numbered(*shape):
    """Whole numbers up to 15, of which neighbours, and those a power of two away, differ; all types but e5m2 hold them."""
    count = 1
    for extent in shape:
        count *= extent
    at = torch.arange(count, device=Where.device)
    return ((at * 37 + at // 64 * 11 + at // 4096 * 5) % 15 + 1).float().view(shape)


def layouts(b):
    """The same matrix with rows that are dense along k, and along n."""
    yield "k", b.contiguous()
    if b.element_size() == 2:
        yield "n", b.mT.contiguous().mT


SHAPES = [
    (1, 64, 64), (1, 520, 1032), (16, 64, 4104), (17, 136, 72), (33, 264, 264), (63, 8, 136), (64, 1000, 520), (65, 128, 8),
    (128, 128, 128), (128, 256, 1000), (200, 520, 328), (257, 776, 192), (512, 768, 4096), (16, 4096, 8192),
]  # fmt: skip
LITTLE = [(1, 64, 64), (17, 136, 80), (65, 128, 16)]


def multiply(m, n, k, dtype, b_dtype, out_dtype, batch=1):
    """Both layouts of b, with and without a bias, factors and an activation. Gives how many were legal."""
    legal = 0
    a, b = randn(batch, m, k, dtype=dtype), randn(batch, n, k, dtype=b_dtype)
    for layout, y in layouts(b):
        name(f"[{batch}, {m}, {k}] {dtype} x [{batch}, {n}, {k}] {b_dtype} along {layout} to {out_dtype}")
        out = has_it(lambda y=y: run_product(a, y, out_dtype))
        if out is None:
            continue
        legal += 1
        want, size = products(torch, a.float(), b.float())
        near(torch, out, want, size, a.element_size() == 1)
        bias = randn(n, dtype=out.dtype)
        factors = torch.rand(1, m, 1, device=a.device) + 0.5, torch.rand(1, n, 1, device=a.device) + 0.5
        want = want * factors[0].double() * factors[1].double().mT
        got = run_product(a, y, out_dtype, bias, *factors, 1)
        near(torch, got, torch.nn.functional.silu(want + bias.double()), 2.5 * size + 1, a.element_size() == 1)
        assert torch.equal(got, run_product(a, y, out_dtype, bias, *factors, 1)), "other bits"
    return legal


def run_product(a, b, out_dtype, bias=None, a_scale=None, b_scale=None, activation=0):
    """By the op, with room for pieces."""
    from parbake._gemm.dense import product

    out = torch.full((a.shape[0], a.shape[1], b.shape[1]), torch.nan, device=a.device).to(out_dtype)
    product(a, b, out, bias, a_scale, b_scale, activation, Where.target.get("target"))
    return out


TYPES = [
    (BF16, BF16, BF16), (F16, F16, F16), (E4M3, E4M3, BF16), (BF16, BF16, torch.float32), (E4M3, E5M2, F16),
    (E5M2, E4M3, torch.float32),
]  # fmt: skip


@check
def types_and_shapes():
    cases = 0
    for i, (m, n, k) in enumerate(gpu(SHAPES, LITTLE)):
        for types in TYPES if i < 6 else TYPES[:3]:
            k8 = -(-k // 16) * 16 if types[0] in (E4M3, E5M2) else k
            cases += multiply(m, n, k8, *types, batch=1 + i % 2)
    return f"{cases} cases"


def probe():
    """Every element of b comes out where it should, and nothing else does: of both layouts, in batches."""
    cases = 0
    for n, k in gpu([(64, 64), (136, 200), (264, 128), (520, 264), (1000, 1032)], [(136, 80)]):
        for dtype in (BF16, F16, E4M3):
            k = -(-k // 16) * 16
            x, ones = numbered(2, n, k).to(dtype), identity(k, dtype)[None].expand(2, k, k)
            # Of the right operand, and of the left one: the other has ones and zeros.
            for side, left, right, want in (("b", ones, x, x.float().mT), ("a", x, ones, x.float())):
                for layout, y in layouts(right):
                    what = f"ones and zeros show {side}, [{n}, {k}] {dtype}, b along {layout}"
                    name(what)
                    out = has_it(lambda left=left, y=y: run_product(left, y, torch.float32))
                    if out is not None:
                        assert torch.equal(out, want), what
                        cases += 1
    return cases


@check
def each_element_has_its_place():
    return f"{probe()} cases"


@forced("bmm")
def by_this_tactic():
    """Shapes on both sides of every tile, types, layouts, pieces; and which of them the tactic has."""
    cases = probe()
    for i, (m, n, k) in enumerate(gpu(SHAPES, LITTLE)):
        for types in TYPES if i < 3 else TYPES[i % 3 : i % 3 + 1]:
            k8 = -(-k // 16) * 16 if types[0] in (E4M3, E5M2) else k
            cases += multiply(m, n, k8, *types, batch=1 + i % 2)
    cases += blocks()
    assert cases, "no call has this tactic"
    return f"{cases} cases"


# Rows of groups: none, one, all, a little more and less than tiles have.
GROUPS = [[0, 0, 5], [1, 0, 1, 70], [0, 137, 0, 0], [3, 130, 20, 0, 9, 64, 63, 65, 1], [300, 256, 128, 1000]]


@forced("group_mm")
def groups_by_this_tactic():
    """Groups one after the other, with room for each, and in rows; both layouts; factors of blocks."""
    from parbake._gemm.workspace import processors

    cases, common = 0, {"processors": processors(torch.device(Where.device, 0)), **Where.target}
    for i, lens in enumerate(gpu(GROUPS, GROUPS[:3])):
        n, k = ((136, 72), (520, 264), (64, 1032), (264, 520), (768, 256))[i]
        total, most, count = sum(lens), max(lens), len(lens)
        for dtype in (BF16, F16, E4M3):
            k = -(-k // 16) * 16
            x, indptr = segments(torch, lens, k, dtype)
            w = randn(count, n, k, dtype=dtype)
            owner = torch.arange(count, device=x.device).repeat_interleave(torch.tensor(lens, device=x.device))
            # With room for each: rows that do not count are not numbers.
            boxes = torch.full((count, most, k), torch.nan, device=x.device).to(dtype)
            for g, (begin, length) in enumerate(zip(indptr.tolist(), lens)):
                boxes[g, :length] = x[begin : begin + length]
            lengths = torch.tensor(lens, dtype=torch.int32, device=x.device)
            ids = torch.cat([owner.int(), torch.full((len(x) - total,), -1, dtype=torch.int32, device=x.device)])
            for layout, y in layouts(w):
                for how, rows in (("indptr", x), ("lengths", boxes.view(-1, k)), ("ids", x)):
                    name(f"{lens} by {how}, [{n}, {k}] {dtype} along {layout}")
                    said = {"indptr": indptr, "lengths": lengths, "ids": ids}[how]
                    out = torch.full((len(rows), n), 7.0, device=x.device)
                    call = lambda: (parbake.group_mm(out, rows, y, **{how: said}, **common), True)[1]  # noqa: E731
                    if has_it(call) is None:
                        continue
                    cases += 1
                    got = out if how != "lengths" else torch.cat([out.view(count, most, n)[g, :m] for g, m in enumerate(lens)])
                    for g, (begin, length) in enumerate(zip(indptr.tolist(), lens)):
                        part = slice(begin, begin + length)
                        near(torch, got[part], *products(torch, x[part].float(), w[g].float()), dtype == E4M3)
                    left = int((out == 7.0).all(-1).sum())
                    assert left == len(rows) - total, f"{left} rows were left, not {len(rows) - total}"
    assert cases, "no call has this tactic"
    return f"{cases} cases"


def blocks():
    """Factors of blocks, all different, of whole numbers: exact."""
    cases = 0
    for m, n, k in gpu([(5, 136, 272), (64, 2112, 1024), (130, 264, 1536), (300, 520, 400)], [(5, 136, 272)]):
        for rows, each in ((m, 1), (-(-m // 128), 128)):
            name(f"blocks of {each}, [{m}, {n}, {k}]")
            a, b = whole_numbers(torch, m, k), whole_numbers(torch, n, k)
            sa, sb = distinct(torch, rows, -(-k // 128)), distinct(torch, -(-n // 128), -(-k // 128))
            want = (a.double() * spread(sa, m, k, each)) @ (b.double() * spread(sb, n, k)).T
            x, y = a.to(E4M3)[None], b.to(E4M3)[None]
            out = has_it(lambda x=x, y=y, sa=sa, sb=sb: run_product(x, y, torch.float32, None, sa[None], sb[None]))
            if out is None:
                continue
            assert want.abs().max() < 2**24 and torch.equal(out[0].double(), want), (m, n, k, each)
            cases += 1
    return cases


@check
def strides_of_all_sizes():
    """One row, or one batch, for all; rows far apart; more than 2^31 elements between rows and between batches."""
    n, k, far = 136, 72, gpu(1 << 27, 1 << 12)
    wide = torch.full((20, far), torch.nan, dtype=BF16, device=Where.device)
    wide[:, 8 : 8 + k] = randn(20, k)
    a = wide[:, 8 : 8 + k]
    b = randn(n, k)
    name(f"rows {far} elements apart")
    near(torch, parbake.mm(a, b, **Where.target), *products(torch, a, b))
    near(torch, parbake.mm(b, a, **Where.target), *products(torch, b, a))
    del wide, a
    apart = gpu((1 << 31) + 8, 1 << 12)
    pool = torch.empty(2 * apart + k * 24, dtype=BF16, device=Where.device)
    batches = pool.as_strided((3, 24, k), (apart, k, 1))
    batches.copy_(randn(3, 24, k))
    name(f"batches {apart} elements apart")
    x = randn(3, 17, k)
    near(torch, parbake.bmm_bf16(x, batches.mT, **Where.target), *products(torch, x, batches))
    out = pool.as_strided((3, 17, 24), (apart, 24, 1))
    want = products(torch, x, batches.clone())
    near(torch, parbake.bmm_bf16(x, batches.clone().mT, out, **Where.target), *want)
    one = randn(1, k).expand(40, k)
    name("one row for all")
    near(torch, parbake.mm(one, b, **Where.target), *products(torch, one, b))
    near(torch, parbake.mm(b, one, **Where.target), *products(torch, b, one))
    every = randn(80, 2 * k)[::2, ::2]
    name("every other row and element")
    near(torch, parbake.mm(every, b, **Where.target), *products(torch, every, b))
    return "6 cases"


@check
def groups_of_many_rows():
    """128 groups of any sizes, some empty, some with one row; rows in any order; more than 65535 rows."""
    cases = 0
    for total, groups, n, k in gpu([(300, 128, 264, 520), (8000, 128, 768, 256), (70000, 8, 136, 64)], [(90, 8, 40, 64)]):
        cuts = torch.randint(0, total + 1, (groups - 1,)).sort().values.tolist()
        lens = [end - begin for begin, end in zip([0, *cuts], [*cuts, total])]
        x, indptr = segments(torch, lens, k, BF16)
        w = randn(groups, n, k)
        owner = torch.arange(groups, device=x.device).repeat_interleave(torch.tensor(lens, device=x.device))
        for layout, y in layouts(w):
            name(f"{total} rows in {groups} groups, [{n}, {k}] along {layout}")
            out = torch.full((len(x), n), 7.0, device=x.device).to(BF16)
            parbake.grouped_mm_bf16(x, y, indptr, out, **Where.target)
            assert (out[total:] == 7).all()
            for g in sorted({0, groups - 1, *owner[:: max(1, total // 20)].tolist()}):
                begin, end = indptr[g], indptr[g + 1]
                near(torch, out[begin:end], *products(torch, x[begin:end], w[g]))
            cases += 1
        indices = torch.randint(-1, groups + 1, (groups,), device=x.device)
        into = torch.full((len(x), n), 7.0, device=x.device).to(BF16)
        parbake.SegmentGEMMWrapper(**Where.target).run(x, w, groups, True, into, None, indptr, indices)
        for g in range(0, groups, max(1, groups // 16)):
            begin, end, matrix = indptr[g], indptr[g + 1], int(indices[g])
            if 0 <= matrix < groups:
                near(torch, into[begin:end], *products(torch, x[begin:end], w[matrix]))
            else:
                assert (into[begin:end] == 7).all()
    return f"{cases} cases"


@check
def replayed_a_thousand_times():
    """Graphs of products that are cut, with other data each time, and several at once."""
    if Where.host:
        return "needs a GPU"
    x, w, q, v = randn(3, 4096), randn(520, 4096), randn(16, 8192, dtype=E4M3), randn(264, 8192, dtype=E4M3)
    calls = lambda: (parbake.mm(x, w), parbake.mm(q, v), parbake.mm(x, w, activation="silu"))  # noqa: E731
    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = calls()
    for i in range(1000):
        x.normal_()
        graph.replay()
        if i % 100 == 0:
            near(torch, outs[0], *products(torch, x, w))
            near(torch, outs[1], *products(torch, q.float(), v.float()), True)
        else:
            assert all(torch.equal(out, again) for out, again in zip(outs, calls()))
    check_gemm.graphs_at_the_same_time()
    return "1000 replays, and 4 graphs side by side"


def kernels_of(call):
    """What runs on the device, by name."""
    from torch.autograd import DeviceType

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return {e.key for e in profile.key_averages() if e.device_type == DeviceType.CUDA}


@check
def the_examples_have_no_foreign_kernel():
    """A step of decode, and a layer of experts, in their graphs. What copies or clears memory is the driver's."""
    if Where.host:
        return "needs a GPU"
    ops = json.loads((CHECKOUT / "generated-manifest/ops.json").read_text(encoding="utf-8"))["ops"]
    ours = tuple(entry["op"]["name"] for entry in ops)
    seen = set()

    def example(file):
        spec = importlib.util.spec_from_file_location(file, CHECKOUT / f"examples/serve/{file}.py")
        module = importlib.util.module_from_spec(spec)
        # Data classes look their module up.
        sys.modules[file] = module
        spec.loader.exec_module(module)
        return module

    serve = example("serve")
    captured = serve.captured

    def watched(step, ids):
        replay = captured(step, ids)
        seen.update(kernels_of(replay))
        return replay

    serve.captured = watched
    with torch.inference_mode():
        model = serve.Model(2, 4096, 32, 8, 128, 14336, 32000, "cuda")
        server = serve.Server(model, 2, 40)
        first, _ = server.prefill([torch.randint(32000, (n,), device="cuda") for n in (17, 30)])
        server.decode(first, [17, 30], 2)
        layer = example("moe_layer").Layer(2048, 768, 128, 8, "cuda")
        x, residual = randn(64, 2048), randn(64, 2048)
        layer.run(x, residual)
        seen |= kernels_of(lambda: layer.run(x, residual))
    kernels = {key for key in seen if not key.startswith(("Memcpy", "Memset"))}
    foreign = sorted(key for key in kernels if not key.startswith(ours))
    assert kernels and not foreign, foreign
    return f"{len(kernels)} kernels, all ours"

