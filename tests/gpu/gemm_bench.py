"""The rows G, F and GG: ours, torch's and Triton's in one run, and how long torch takes to read as many bytes."""

import math
import traceback

import harness
import torch
from attention_bench import BYTES, FLOPS, L2, measure
from attention_setup import BF16, Where, make, name
from check_gemm import near

import parbake

# What is assumed of products of 8 bits.
NARROW = 1500e12
E4M3 = torch.float8_e4m3fn
KINDS = {"bf16": BF16, "f32": BF16, "one": E4M3, "blocks": E4M3}


class Row:
    """A workload: `kind` bf16; f32: the same with results in f32; one: 8 bits with one factor for each side; blocks: with
    factors of 1 x 128 and 128 x 128 elements. `groups`: of m rows each; `room`: rows that lie between their beginnings."""

    def __init__(self, id, what, m, n, k, kind="bf16", groups=None, room=None):
        if Where.host:
            m, n, k, groups, room = min(m, 24), min(n, 136), min(k, 272), groups and min(groups, 3), room and 32
        self.id, self.what, self.m, self.n, self.k, self.kind, self.groups, self.room = id, what, m, n, k, kind, groups, room
        self.dtype, self.out = KINDS[kind], torch.float32 if kind == "f32" else BF16

    @property
    def count(self):
        return self.groups or 1

    def flops(self):
        return 2 * self.count * self.m * self.n * self.k

    def bytes(self):
        width = 1 if self.dtype == E4M3 else 2
        results = self.m * self.n * (4 if self.out == torch.float32 else 2)
        return self.count * ((self.m + self.n) * self.k * width + results)

    def floor(self):
        """Microseconds that the products or the bytes take."""
        return max(self.flops() / (NARROW if self.dtype == E4M3 else FLOPS), self.bytes() / BYTES) * 1e6


def rows():
    return [
        Row("G1", "8192^3", 8192, 8192, 8192),
        Row("G2", "4096^3", 4096, 4096, 4096),
        Row("G3", "one row", 1, 4096, 4096),
        Row("G4", "Llama-8B qkv", 16, 6144, 4096),
        Row("G5", "Llama-8B gate and up", 64, 28672, 4096),
        Row("G6", "Llama-8B down", 64, 4096, 14336),
        Row("G7", "Llama-70B gate and up, TP8", 256, 7168, 8192),
        Row("G8", "Llama-70B gate and up", 4096, 57344, 8192),
        Row("G9", "Llama-8B head, f32", 64, 128256, 4096, "f32"),
        Row("G10", "DeepSeek-V3 q and kv", 2048, 2112, 7168),
        Row("F1", "blocks", 64, 2112, 7168, "blocks"),
        Row("F2", "blocks", 128, 7168, 16384, "blocks"),
        Row("F3", "blocks", 64, 24576, 1536, "blocks"),
        Row("F4", "blocks", 4096, 4096, 7168, "blocks"),
        Row("F5", "blocks", 4096, 7168, 16384, "blocks"),
        Row("F6", "blocks", 4096, 24576, 1536, "blocks"),
        Row("F7", "one factor", 8192, 8192, 8192, "one"),
        Row("GG1", "contiguous", 4096, 4096, 7168, "blocks", 8),
        Row("GG2", "contiguous", 4096, 7168, 2048, "blocks", 8),
        Row("GG3", "masked", 256, 4096, 7168, "blocks", 4, 512),
        Row("GG4", "masked", 20, 4096, 7168, "blocks", 32, 128),
        Row("GG5", "Qwen3-30B-A3B, 8k tokens", 512, 1536, 2048, "bf16", 128),
    ]


def numbers(*shape, dtype):
    """Standard normal; so many that the same ones do not come side by side, in a type at a time."""
    return make(*shape, device=Where.device).to(dtype)


class Problem:
    """Tensors of a row, as many sets as are cold in turn."""

    def __init__(self, row):
        self.row = row
        self.sets = 1 if Where.host else max(1, min(24, math.ceil(3 * L2 / row.bytes())))
        lead = (row.groups,) if row.groups else ()
        m, n, k = row.m, row.n, row.k
        if row.room:
            a_shape = (row.groups, row.room, k)
        else:
            a_shape = (row.count * m, k)
        out_shape = (*a_shape[:-1], n)
        self.a = [numbers(*a_shape, dtype=row.dtype) for _ in range(self.sets)]
        self.b = [numbers(*lead, n, k, dtype=row.dtype) for _ in range(self.sets)]
        self.out = [torch.empty(out_shape, dtype=row.out, device=Where.device) for _ in range(self.sets)]
        random = lambda *shape: 0.5 + torch.rand(*shape, device=Where.device)  # noqa: E731
        self.sa = self.sb = None
        blocks = -(-k // 128)
        if row.kind == "blocks":
            self.sa, self.sb = random(*a_shape[:-1], blocks), random(*lead, -(-n // 128), blocks)
        elif row.kind == "one":
            # Powers of two: Triton's product is multiplied by them afterwards.
            self.sa, self.sb = (torch.tensor([x], device=Where.device) for x in (0.5, 4.0))
        self.indptr = torch.arange(0, row.count * m + 1, m, dtype=torch.int32, device=Where.device)
        self.lengths = torch.full((row.count,), m, dtype=torch.int32, device=Where.device)

    def wide(self, x, scale, at, each):
        """Some rows in float64, with their factors."""
        if scale is None or scale.numel() == 1:
            return x[at].double() * (1.0 if scale is None else scale.double())
        picked = scale[at // each].double().repeat_interleave(128, -1)[:, : x.shape[1]]
        return x[at].double() * picked

    def verify(self, out, whose):
        """Some rows and columns against float64; of groups the first, one between, and the last. Of ours every element has
        to be near, of others' only all together: they may add up in 16 bits.
        """
        row, worst = self.row, 0.0
        groups = sorted({0, row.count // 2, row.count - 1})
        for g in groups:
            a, b, sb, got = self.a[0], self.b[0], self.sb, out
            sa = self.sa
            if row.room:
                a, got, sa = a[g], got[g], sa[g]
            elif row.groups:
                of = slice(g * row.m, (g + 1) * row.m)
                a, got, sa = a[of], got[of], None if sa is None else sa[of]
            if row.groups:
                b, sb = b[g], None if sb is None else sb[g]
            i = torch.randint(0, row.m, (min(row.m, 32),), device=a.device)
            j = torch.randint(0, row.n, (min(row.n, 256),), device=a.device)
            x, y = self.wide(a, sa, i, 1), self.wide(b, sb, j, 128)
            want, size = x @ y.T, x.abs() @ y.abs().T
            if whose == "parbake":
                near(torch, got[i][:, j], want, size, row.dtype == E4M3)
            worst = max(worst, ((got[i][:, j].double() - want).norm() / want.norm()).item())
        if not worst < 1e-2:
            raise AssertionError(f"wrong: off by {worst:.1e} of its norm")
        return worst


def ours(p):
    row, where = p.row, Where.target
    if row.room:
        run = lambda i: parbake.batch_deepgemm_fp8_nt_groupwise(  # noqa: E731
            p.a[i], p.b[i], p.sa, p.sb, p.lengths, row.m, out=p.out[i], **where)  # fmt: skip
    elif row.groups and row.kind == "blocks":
        run = lambda i: parbake.group_gemm_fp8_nt_groupwise(  # noqa: E731
            p.a[i], p.b[i], p.sa, p.sb, p.indptr, scale_major_mode="K", out=p.out[i], **where)  # fmt: skip
    elif row.groups:
        run = lambda i: parbake.grouped_mm_bf16(p.a[i], p.b[i], p.indptr, p.out[i], **where)  # noqa: E731
    elif row.kind == "blocks":
        run = lambda i: parbake.gemm_fp8_nt_groupwise(p.a[i], p.b[i], p.sa, p.sb, "K", out=p.out[i], **where)  # noqa: E731
    else:
        run = lambda i: parbake.mm(p.a[i], p.b[i], None, p.sa, p.sb, out=p.out[i], **where)  # noqa: E731
    return run, lambda: p.out[0]


def cublas(p):
    row = p.row
    if row.groups:
        if row.room or row.kind != "bf16":
            raise NotImplementedError("torch has no such product")
        product = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
        ends = p.indptr[1:]
        kept = {}

        def run(i):
            kept[i] = product(p.a[i], p.b[i].mT, offs=ends)

        return run, lambda: kept[0]
    if row.kind == "one":
        kept = {}

        def run(i):
            kept[i] = torch._scaled_mm(p.a[i], p.b[i].T, scale_a=p.sa[0], scale_b=p.sb[0], out_dtype=row.out)

        return run, lambda: kept[0]
    if row.kind == "blocks":
        kept = {}
        # As cuBLAS wants them: those of a with rows side by side.
        sa, sb = p.sa.T.contiguous().T, p.sb.T

        def run(i):
            kept[i] = torch._scaled_mm(p.a[i], p.b[i].T, scale_a=sa, scale_b=sb, out_dtype=row.out)

        return run, lambda: kept[0]
    if row.kind == "f32":
        return (lambda i: torch.mm(p.a[i], p.b[i].T, out_dtype=torch.float32, out=p.out[i])), lambda: p.out[0]
    return (lambda i: torch.mm(p.a[i], p.b[i].T, out=p.out[i])), lambda: p.out[0]


def without_blocks(p):
    """What torch takes with one factor for each side, of groups with one for each row: a bound of what it would take with
    blocks.
    """
    row = p.row
    if row.kind != "blocks" or row.room:
        raise NotImplementedError("only where there are blocks, and no masks")
    if not row.groups:
        one = torch.ones((), device=Where.device)
        return (lambda i: torch._scaled_mm(p.a[i], p.b[i].T, scale_a=one, scale_b=one, out_dtype=row.out)), None
    ones = torch.ones(row.count * row.m, device=Where.device), torch.ones(row.count, row.n, device=Where.device)
    ends = p.indptr[1:]
    return (lambda i: torch._scaled_grouped_mm(p.a[i], p.b[i].mT, *ones, ends, out_dtype=row.out)), None


def triton(p):
    row = p.row
    if row.groups or Where.host:
        raise NotImplementedError("written for one product on a GPU")
    import gemm_triton as theirs

    best = None
    for tile in theirs.tiles(row.m, row.kind == "blocks"):
        tile = tile if row.kind == "blocks" else theirs.narrow(tile, row.dtype)
        factors = (p.sa, p.sb) if row.kind == "blocks" else (None, None)
        call = lambda i, tile=tile: theirs.product(p.a[i], p.b[i], p.out[i], *factors, tile)  # noqa: E731
        call(0)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(4):
            call(i % p.sets)
        end.record()
        end.synchronize()
        if best is None or begin.elapsed_time(end) < best[0]:
            best = begin.elapsed_time(end), call
    factor = 1.0 if row.kind != "one" else (p.sa * p.sb).to(row.out)
    return best[1], lambda: p.out[0] * factor


def reading(p):
    """Torch's read of as many bytes as b has, which is nearly all of them."""
    if p.row.m > 64 or p.row.groups:
        raise NotImplementedError("for few rows")
    flat = [b.view(torch.uint8).flatten() for b in p.b]
    flat = [x[: x.numel() // 4 * 4].view(torch.float32) for x in flat]
    return (lambda i: torch.amax(flat[i])), None


PEERS = {"torch": cublas, "torch, no blocks": without_blocks, "triton": triton, "read": reading}


def run(part, only, done):
    # The bounds of check_gemm are those of this device.
    harness.Setup.device = Where.device
    # With a tactic that is forced, ours alone, and the rows of its op.
    alone = part != "bench"
    for row in rows():
        if only not in row.id or row.id in done or part == "bench bmm:path=0" and row.id != "G2":
            continue
        if alone and ("group_mm:" if row.groups else "bmm:") not in part:
            continue
        Where.say(begin=row.id)
        try:
            problem = Problem(row)
        except Exception as error:
            traceback.print_exc()
            Where.say(end=row.id, ok=False, detail=str(error).splitlines()[0])
            continue
        times, words, ok = {}, [], True
        for library, prepare in {"parbake": ours, **({} if alone else PEERS)}.items():
            name(f"{row.id} {library}")
            try:
                for out in problem.out:
                    out.fill_(torch.nan)
                call, result = prepare(problem)
                call(0)
                error = problem.verify(result(), library) if result else None
                calls = [lambda i=i: call(i) for i in range(problem.sets)]
                us, spread_of = measure(calls, row.bytes() * problem.sets)
                times[library] = {"us": us, "spread": spread_of, "error": error, "share": row.floor() / us}
                rate = f", {row.flops() / us / 1e6:.0f} TFLOP/s, {row.bytes() / us / 1e6:.2f} TB/s" if library == "parbake" else ""
                words.append(f"{library} {us:.1f} us ({row.floor() / us:.2f}{rate})")
                del call, calls, result
            except NotImplementedError as error:
                times[library] = {"reason": str(error)}
                if library == "parbake":
                    ok = False
                    words.append(f"{library}: {error}")
            except Exception as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                times[library] = {"reason": reason}
                words.append(f"{library}: {reason}")
                # What others cannot do is no failure of ours; nor is a tactic that a call does not have.
                if library == "parbake":
                    ok = None if "PB-2220" in reason else False
                    if ok is False:
                        traceback.print_exc()
        floor = f"floor {row.floor():.1f} us, {row.flops() / 1e9:.1f} GFLOP, {row.bytes() / 1e6:.1f} MB"
        shape = f"{row.m} x {row.n} x {row.k}" + (f", {row.groups} groups" if row.groups else "")
        Where.say(end=row.id, ok=ok, detail=f"{row.what}, {shape}: {', '.join(words)}; {floor}", floor_us=row.floor(),
                  flops=row.flops(), bytes=row.bytes(), times=times)  # fmt: skip
        del problem
        if not Where.host:
            torch.cuda.empty_cache()
