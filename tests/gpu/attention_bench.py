"""The rows D1 to D10 and P1 to P9: ours, torch's SDPA and FlashInfer in one run, and what plan and run cost the host."""

import functools
import math
import statistics
import time
import traceback

import dense
import torch
from attention_setup import BF16, BOUND, Where, Worst, make, name, workspace

import parbake

# What the chip is measured to do: products of bf16 in f32, and bytes from memory.
FLOPS, BYTES = 790e12, 4.3e12
L2 = 60 << 20


class Row:
    """A workload. Lengths of keys are those of the requests; `page` None is keys one request after the other."""

    def __init__(self, id, what, qo, kv, heads, kv_heads, dim, causal=False, page=16, window=-1, cap=0.0, sinks=False, fp8=False):
        if Where.host:
            kv, heads, kv_heads = [max(1, n // 256) for n in kv[:3]], heads // kv_heads, 1
            qo = 1 if qo == 1 else max(1, qo // 256)
        self.id, self.what, self.qo, self.kv, self.heads, self.kv_heads, self.dim = id, what, qo, kv, heads, kv_heads, dim
        self.causal, self.page, self.window, self.cap, self.sinks, self.fp8 = causal, page, window, cap, sinks, fp8

    @property
    def tokens(self):
        return self.qo * len(self.kv)

    def pairs(self):
        """Of a query and a key that it sees."""
        total = 0
        for m in self.kv:
            if self.window >= 0:
                total += self.qo * min(self.window + 1, m)
            elif self.causal:
                total += self.qo * m - self.qo * (self.qo - 1) // 2
            else:
                total += self.qo * m
        return total

    def flops(self):
        return 4 * self.pairs() * self.heads * self.dim

    def bytes(self):
        seen = sum(min(m, self.qo + self.window) if self.window >= 0 else m for m in self.kv)
        return 2 * seen * self.kv_heads * self.dim * (1 if self.fp8 else 2) + 4 * self.tokens * self.heads * self.dim

    def floor(self):
        """Microseconds that the products or the bytes take."""
        return max(self.flops() / FLOPS, self.bytes() / BYTES) * 1e6


def rows():
    return [
        Row("D1", "Llama-8B", 1, [4096], 32, 8, 128),
        Row("D2", "Llama-8B", 1, [4096] * 64, 32, 8, 128),
        Row("D2b", "128 requests, 64/8", 1, [2048] * 128, 64, 8, 128),
        Row("D2c", "1 request of 8192, 64/8", 1, [8192], 64, 8, 128),
        Row("D2d", "64 requests, 64/8", 1, [4096] * 64, 64, 8, 128),
        Row("D3", "Llama-8B", 1, [2048] * 256, 32, 8, 128),
        Row("D4", "Llama-70B TP8", 1, [8192] * 64, 8, 1, 128),
        Row("D5", "Llama-70B", 1, [32768] * 16, 64, 8, 128),
        Row("D6", "Qwen3-235B", 1, [4096] * 128, 64, 4, 128),
        Row("D7", "gpt-oss full", 1, [8192] * 128, 64, 8, 64, sinks=True),
        Row("D8", "gpt-oss window", 1, [8192] * 128, 64, 8, 64, window=127, sinks=True),
        Row("D9", "Llama-8B, e4m3 keys", 1, [4096] * 64, 32, 8, 128, fp8=True),
        Row("D10", "skewed", 1, [512] * 63 + [131072], 32, 8, 128),
        Row("P1", "FA3 paper", 8192, [8192] * 2, 16, 16, 128, page=None),
        Row("P2", "FA3 paper, causal", 8192, [8192] * 2, 16, 16, 128, True, page=None),
        Row("P2b", "causal 1x8192, 32/8", 8192, [8192], 32, 8, 128, True, page=None),
        Row("P3", "Llama-8B ragged", 1024, [1024] * 8, 32, 8, 128, True, page=None),
        Row("P4", "Llama-70B paged", 8192, [8192], 64, 8, 128, True),
        Row("P5", "Llama-70B append", 512, [16384] * 4, 64, 8, 128, True, page=64),
        Row("P6", "Qwen3-30B", 32768, [32768], 32, 4, 128, True, page=None),
        Row("P7", "gpt-oss window", 8192, [8192] * 2, 64, 8, 64, True, window=127, sinks=True),
        Row("P8", "gpt-oss full", 8192, [8192] * 2, 64, 8, 64, True, sinks=True),
        Row("P9", "Gemma-2-9B", 8192, [8192], 16, 8, 256, True, page=None, cap=50.0),
    ]


class Problem:
    """Tensors of a row: queries, and as many caches as are cold in turn."""

    def __init__(self, row):
        device = Where.device
        self.row = row
        self.sets = 1 if Where.host else max(1, min(24, math.ceil(3 * L2 / row.bytes())))
        self.q = [torch.randn(row.tokens, row.heads, row.dim, device=device).to(BF16) for _ in range(self.sets)]
        self.out = [torch.empty_like(q) for q in self.q]
        self.sinks = torch.randn(row.heads, device=device) if row.sinks else None
        if row.page is None:
            shape = (sum(row.kv), row.kv_heads, row.dim)
            self.k, self.v = ([make(*shape, device=device) for _ in range(self.sets)] for _ in range(2))
            self.caches = [None] * self.sets
        else:
            # Only what lies in pages is kept: the reference gathers it.
            pages = dense.Pages(row.kv, row.page, row.kv_heads, row.dim, row.dim, BF16, device, make=make)
            self.batch = pages.batch
            pages.k = pages.v = None
            kind = torch.float8_e4m3fn if row.fp8 else BF16
            self.caches = [tuple(x.to(kind, copy=True) for x in (pages.k_pages, pages.v_pages)) for _ in range(self.sets)]
        self.qo_indptr = dense.indptr([row.qo] * len(row.kv), device)
        self.kv_indptr = dense.indptr(row.kv, device)
        self.room = workspace(row.dim)
        self.other_room = None

    def keys(self, request):
        """Those of a request, of the first set."""
        if self.row.page is None:
            begin, end = self.kv_indptr[request : request + 2].tolist()
            return self.k[0][begin:end], self.v[0][begin:end]
        begin, end = self.batch[0][request : request + 2].tolist()
        return tuple(x[self.batch[1][begin:end].long()].flatten(0, 1)[: self.row.kv[request]] for x in self.caches[0])

    def planned(self, library, **more):
        """A wrapper of a library, its plan and its launch for a set."""
        row, options = self.row, {"logits_soft_cap": self.row.cap or None, "window_left": self.row.window}
        kinds = {"q_data_type": BF16, "kv_data_type": torch.float8_e4m3fn if row.fp8 else BF16}
        ours = library is parbake
        given = dict(Where.target) if ours else {}
        room = self.room
        if not ours:
            # It needs more; how much it does not say.
            room = self.other_room = torch.zeros(512 << 20, dtype=torch.uint8, device=Where.device)
        # FlashInfer's kernels of these names take no sinks: it is timed without them.
        sinks = {"sinks": self.sinks} if ours and self.sinks is not None else {}
        tokens = {"num_tokens": row.tokens} if ours else {}
        shape = (row.heads, row.kv_heads, row.dim)
        if row.page is None:
            wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(room, "NHD", **more, **given)
            plan = lambda: wrapper.plan(  # noqa: E731
                self.qo_indptr, self.kv_indptr, *shape, causal=row.causal, **options, **kinds, **tokens)  # fmt: skip
            run = lambda i: wrapper.run(self.q[i], self.k[i], self.v[i], out=self.out[i], **sinks)  # noqa: E731
        elif row.qo == 1:
            wrapper = library.BatchDecodeWithPagedKVCacheWrapper(room, "NHD", use_tensor_cores=True, **more, **given)
            plan = lambda: wrapper.plan(*self.batch, *shape, row.page, **options, **kinds)  # noqa: E731
            run = lambda i: wrapper.run(self.q[i], self.caches[i], out=self.out[i], **sinks)  # noqa: E731
        else:
            wrapper = library.BatchPrefillWithPagedKVCacheWrapper(room, "NHD", **more, **given)
            plan = lambda: wrapper.plan(  # noqa: E731
                self.qo_indptr, *self.batch, *shape, row.page, causal=row.causal, **options, **kinds, **tokens)  # fmt: skip
            run = lambda i: wrapper.run(self.q[i], self.caches[i], out=self.out[i], **sinks)  # noqa: E731
        return plan, run

    def verify(self, out, sinks=True):
        """Some requests, and of long ones some queries, against float64; the worst in units of what is allowed."""
        row, worst = self.row, Worst()
        requests = range(len(row.kv)) if len(row.kv) <= 8 else (0, 1, len(row.kv) // 2, len(row.kv) - 1)
        for i in requests:
            k, v = self.keys(i)
            q = self.q[0][i * row.qo : (i + 1) * row.qo]
            at = torch.unique(torch.tensor([0, row.qo // 2, row.qo - 1, *range(max(0, row.qo - 24), row.qo)], device=q.device))
            reference = {"causal": row.causal, "window": row.window, "soft_cap": row.cap}
            want = dense.attention(q, k, v, sinks=self.sinks if sinks else None, at=at, **reference)
            worst.see(f"{row.id} request {i}", out[i * row.qo : (i + 1) * row.qo][at], None, want, 2 * BOUND[BF16] if row.fp8 else None)
        return worst.o


@functools.cache
def timer():
    from norm import Timer

    return Timer()


def measure(calls, footprint):
    """Median and spread in microseconds of a launch: graph replays on a GPU, one call after the other on a CPU."""
    if not Where.host:
        return timer()(calls * max(1, math.ceil(4 / len(calls))), footprint)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        calls[0]()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times), (max(times) - min(times)) / statistics.median(times)


def ours(problem):
    plan, run = problem.planned(parbake)
    plan()
    run(0)
    return [lambda i=i: run(i) for i in range(problem.sets)], problem.verify(problem.out[0])


def theirs(problem):
    import flashinfer

    plan, run = problem.planned(flashinfer, backend="fa2")
    plan()
    for out in problem.out:
        out.zero_()
    run(0)
    return [lambda i=i: run(i) for i in range(problem.sets)], problem.verify(problem.out[0], sinks=False)


def sdpa(backend):
    """torch's own on dense keys, which no pages cost it anything; only where all requests are as long."""

    def make_calls(problem):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        row = problem.row
        if len(set(row.kv)) > 1 or row.window >= 0 or row.cap or row.fp8 or (row.causal and row.qo != row.kv[0]):
            raise NotImplementedError("lengths, window, cap, type or mask that it does not have")
        n, (keys, values) = len(row.kv), (torch.stack(x) for x in zip(*(problem.keys(i) for i in range(len(row.kv)))))
        q = [x.view(n, row.qo, row.heads, row.dim).transpose(1, 2) for x in problem.q]
        k, v = ([x.transpose(1, 2).clone() for _ in range(problem.sets)] for x in (keys, values))
        which = SDPBackend.MATH if Where.host else getattr(SDPBackend, backend)

        def call(i):
            with sdpa_kernel([which]):
                return torch.nn.functional.scaled_dot_product_attention(
                    q[i], k[i], v[i], is_causal=row.causal, enable_gqa=row.heads != row.kv_heads
                )

        out = call(0).transpose(1, 2).reshape(row.tokens, row.heads, row.dim)
        return [lambda i=i: call(i) for i in range(problem.sets)], problem.verify(out, sinks=False)

    return make_calls


def host_cost(library, **more):
    """Median microseconds that plan and run take of the host, decode of 64 requests, while the GPU keeps up."""
    problem = Problem(Row("host", "", 1, [16] * 64, 32, 8, 128))
    plan, run = problem.planned(library, **more)
    wait = (lambda: None) if Where.host else torch.cuda.synchronize
    times = {"plan": [], "run": []}
    for _ in range(3 if Where.host else 200):
        for what, call in (("plan", plan), ("run", lambda: run(0))):
            wait()
            began = time.perf_counter()
            call()
            times[what].append((time.perf_counter() - began) * 1e6)
    return {what: statistics.median(some) for what, some in times.items()}


def run(only, done, flashinfer):
    libraries = {"parbake": ours, "sdpa flash": sdpa("FLASH_ATTENTION"), "sdpa cudnn": sdpa("CUDNN_ATTENTION")}
    if flashinfer:
        libraries["flashinfer"] = theirs
    for row in rows():
        if only not in row.id or row.id in done:
            continue
        Where.say(begin=row.id)
        try:
            problem = Problem(row)
        except Exception as error:
            traceback.print_exc()
            Where.say(end=row.id, ok=False, detail=str(error).splitlines()[0])
            continue
        times, words, ok = {}, [], True
        for library, prepare in libraries.items():
            name(f"{row.id} {library}")
            try:
                calls, worst = prepare(problem)
                us, spread = measure(calls, row.bytes() * problem.sets)
                times[library] = {"us": us, "spread": spread, "worst": worst, "share": row.floor() / us}
                words.append(f"{library} {us:.1f} µs ({row.floor() / us:.2f})")
                del calls
            except Exception as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                times[library] = {"reason": reason}
                # What others cannot do is no failure of ours; nor is a kernel that does not exist yet.
                if library == "parbake":
                    there = not row.fp8 or "e4m3" in parbake.batch_attention.__doc__
                    ok = False if there and not isinstance(error, NotImplementedError) else None
                    words.append(f"{library}: {reason}")
                    if ok is False:
                        traceback.print_exc()
        rate = f"floor {row.floor():.1f} µs, {row.flops() / 1e9:.1f} GFLOP, {row.bytes() / 1e6:.1f} MB"
        Where.say(end=row.id, ok=ok, detail=f"{row.what}: {', '.join(words)}; {rate}", floor_us=row.floor(), flops=row.flops(),
                  bytes=row.bytes(), times=times)  # fmt: skip
        del problem
        if not Where.host:
            torch.cuda.empty_cache()
    title = "host cost"
    if only in title and title not in done:
        Where.say(begin=title)
        cost = {"parbake": host_cost(parbake)}
        if flashinfer:
            import flashinfer as peer

            cost["flashinfer"] = host_cost(peer, backend="fa2")
        words = [f"{who}: plan {c['plan']:.1f} + run {c['run']:.1f} µs" for who, c in cost.items()]
        Where.say(end=title, ok=True, detail=", ".join(words), times=cost)
