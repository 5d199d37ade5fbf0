#!/usr/bin/env python3
"""Checks and times the ops that select the greatest elements on a GPU. Needs PyTorch with CUDA and the package parbake.

    python3 tests/gpu/topk.py [--quick] [--bench] [--only WORD] [--json FILE]

Values, indices and masks must be those of a stable sort, bit for bit; renormalised probabilities within one unit in the
last place of float64. Rows: normal, many equal elements, -inf, NaN, denormals, sorted; lengths around vectors, lists and
clusters; rows anywhere in memory. Then what a trial of the library does not do: more rows than 65535, more elements than
2^31, NaN, in place, launches that follow each other while others run, replays of a graph on new data.

--bench times with a cold L2: the median of 30 replays of a graph of ten calls over rotating inputs. Beside it stand
torch.topk, FlashInfer if it can be imported, and one pass over the memory (reads and writes) at 4.27 TB/s.
"""

import argparse
import json
import statistics
import sys

import torch

import parbake

DEVICE = "cuda"
ROOF = 4.27e12
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def ranked(x, late=False):
    """Indices, the greatest element first: NaN before everything, of equal ones the first, or the last if `late`."""
    nan, x = x.isnan(), x.double() + 0.0
    x = torch.where(nan, torch.inf, x)
    if late:
        x, nan = x.flip(-1), nan.flip(-1)
    order = x.sort(dim=-1, descending=True, stable=True).indices
    order = order.gather(-1, nan.gather(-1, order).int().sort(dim=-1, descending=True, stable=True).indices)
    return order.shape[-1] - 1 - order if late else order


def same(a, b):
    """Equal bit for bit."""
    return a.shape == b.shape and torch.equal(a.contiguous().view(BITS[a.dtype]), b.contiguous().view(BITS[b.dtype]))


def ulps(got, want):
    """The largest distance from float64 values, in units of the last place of the rounded ones."""
    want = want.to(got.dtype).contiguous().view(BITS[got.dtype])
    return (got.contiguous().view(BITS[got.dtype]).long() - want.long()).abs().max().item() if got.numel() else 0


def strided(x, pad, offset):
    """The same rows, `pad` elements apart, the first `offset` elements behind a vector boundary. NaN lies between."""
    rows, cols = x.shape
    memory = torch.full((rows * (cols + pad) + offset + 16,), torch.nan, dtype=x.dtype, device=x.device)
    view = memory[offset : offset + rows * (cols + pad)].view(rows, cols + pad)[:, :cols]
    return view.copy_(x)


def scores(kind, rows, cols, dtype, g):
    x = torch.randn(rows, cols, device=DEVICE, generator=g)
    if kind == "ties":
        x = (x * 4).round() / 4
    elif kind == "equal":
        x = torch.full_like(x, 1.5)
    elif kind == "inf":
        x[torch.rand(x.shape, device=DEVICE, generator=g) < 0.7] = -torch.inf
    elif kind == "all -inf":
        x = torch.full_like(x, -torch.inf)
    elif kind == "nan":
        for value in (torch.nan, -torch.nan, torch.inf, 0.0, -0.0):
            x[torch.rand(x.shape, device=DEVICE, generator=g) < 0.1] = value
    elif kind == "tiny":
        x = x * 1e-40
    elif kind == "sorted":
        x = x.sort(dim=1).values
    return x.to(dtype)


KINDS = ["normal", "ties", "equal", "inf", "all -inf", "nan", "tiny", "sorted"]


def cases(quick):
    """Kind, type, rows, columns, k and layout: every kind and length, the others in turn."""
    lengths = [1, 7, 111, 500, 4097, 32000, 70001] if quick else [1, 2, 7, 31, 111, 500, 1024, 4096, 4097, 8191, 32000]
    lengths += [] if quick else [65536, 70001, 128256, 131072, 151936, 262144, 1000003]
    turn = 0
    for cols in lengths:
        for kind in KINDS:
            for k in sorted({1, min(10, cols), min(1023, cols), min(2048, cols), max(1, cols - 1), cols}):
                turn += 1
                rows = [1, 3, 40, 300][turn % 4] if cols <= 8192 else [1, 3, 40][turn % 3] if cols < 200000 else 2
                layout = [(0, 0), (8, 0), (1, 3), (5, 1)][turn % 4]
                yield kind, list(TYPES)[turn % 3], rows, cols, k, layout, turn


def check_top_k(a, g, wrong):
    n = 0
    for kind, name, rows, cols, k, layout, turn in cases(a.quick):
        x = strided(scores(kind, rows, cols, TYPES[name], g), *layout)
        late, arranged = turn % 5 == 0, turn % 2 == 0 and k <= 4096
        values, indices = parbake.top_k(x, k, sorted=arranged, tie_break=2 if late else turn % 2)
        want = ranked(x, late)[:, :k]
        want = want if arranged else want.sort(dim=1).values
        if not torch.equal(indices, want) or not same(values, x.gather(1, want)):
            wrong(f"top_k {kind} {name} [{rows},{cols}] k {k} {layout} late {late} sorted {arranged}")
        n += 1
    return n


def check_transforms(a, g, wrong):
    n = 0
    for kind, name, rows, cols, k, layout, turn in cases(a.quick):
        if cols > 200000:
            continue
        x = strided(scores(kind, rows, cols, TYPES[name], g), *layout)
        late = turn % 2 == 0
        lengths = torch.randint(-2, cols + 3, (rows,), device=DEVICE, generator=g).int()
        table = torch.randint(0, 1 << 30, (rows + 2, cols), device=DEVICE, generator=g, dtype=torch.int32)
        batch = torch.randint(-1, rows + 3, (rows,), device=DEVICE, generator=g).int() if turn % 3 else None
        offsets = torch.randint(0, 1 << 20, (rows,), device=DEVICE, generator=g).int()
        pages = parbake.top_k_page_table_transform(x, table, lengths, k, batch, tie_break=2 if late else 1)
        places = parbake.top_k_ragged_transform(x, offsets, lengths, k, tie_break=2 if late else 1)
        for row in range(min(rows, 8)):
            taken = ranked(x[row, : lengths[row].clamp(min=0)], late)[:k].sort().values
            b = row if batch is None else int(batch[row])
            want = torch.full((2, k), -1, dtype=torch.int32, device=DEVICE)
            want[0, : len(taken)] = taken.int() + offsets[row]
            if 0 <= b < rows + 2:
                want[1, : len(taken)] = table[b, taken]
            if not torch.equal(places[row], want[0]) or not torch.equal(pages[row], want[1]):
                wrong(f"transforms {kind} {name} [{rows},{cols}] k {k} {layout} row {row}")
        n += 2
    return n


def mask(x, k):
    """Of each row the k greatest, k a number or a column."""
    order = ranked(x)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(x.shape[1], device=x.device).expand_as(order))
    return rank < torch.as_tensor(k, device=x.device).clamp(min=1)


def renormed(x, keep):
    v = x.double()
    bad = (v.isnan() | v.isposinf()).any(dim=1, keepdim=True)
    v = torch.where(v > 0, v, 0.0)
    kept = torch.where(keep(v), v, 0.0)
    total = kept.sum(dim=1, keepdim=True)
    return torch.where(bad, torch.nan, torch.where(total > 0, kept / total, 0.0))


def head(v, p):
    """What makes up the share p of each row of positive values."""
    ordered, order = v.sort(dim=1, descending=True, stable=True)
    upto = ordered.cumsum(dim=1)
    before = torch.nn.functional.pad(upto[:, :-1], (1, 0))
    kept = (before < p * upto[:, -1:]) | (p >= 1)
    kept[:, 0] = True
    return torch.zeros_like(kept).scatter_(1, order, kept)


def differs(got, want):
    nan = want.isnan()
    return not torch.equal(got.isnan(), nan) or ulps(got[~nan], want[~nan]) > 1


def check_rows(a, g, wrong):
    n = 0
    for kind, name, rows, cols, k, layout, turn in cases(a.quick):
        x = strided(scores(kind, rows, cols, TYPES[name], g), *layout)
        many = turn % 3 == 0
        ks = torch.randint(-2, cols + 3, (rows,), device=DEVICE, generator=g).int() if many else k
        column = ks[:, None] if many else ks
        want = torch.where(mask(x, column), x, torch.tensor(-torch.inf, dtype=x.dtype, device=DEVICE))
        if not same(parbake.top_k_mask_logits(x, ks), want):
            wrong(f"top_k_mask_logits {kind} {name} [{rows},{cols}] k {k} {layout} per row {many}")
        probs = x.float().softmax(dim=1)
        probs = torch.where(probs.isnan(), x.float(), probs) if kind == "nan" else probs.nan_to_num()
        probs = strided(probs.to(x.dtype), *layout)
        where = f"{kind} {name} [{rows},{cols}] {layout} per row {many}"
        if differs(parbake.top_k_renorm_probs(probs, ks), renormed(probs, lambda v: mask(v, column))):
            wrong(f"top_k_renorm_probs {where} k {k}")
        p = torch.tensor([0.0, 0.1, 0.5, 0.9, 0.99, 1.0, -1.0, 2.0], device=DEVICE)[torch.arange(rows, device=DEVICE) % 8]
        p = p if many else [0.1, 0.5, 0.9, 1.0][turn % 4]
        share = torch.as_tensor(p, device=DEVICE).float().double().reshape(-1, 1)
        if differs(parbake.top_p_renorm_probs(probs, p), renormed(probs, lambda v: head(v, share))):
            wrong(f"top_p_renorm_probs {where} p {p}")
        n += 3
    return n


def check_large(a, g, wrong):
    """Grids beyond 65535 rows, and more than 2^31 elements: 5 GB of bf16."""
    x = scores("normal", 70001, 64, torch.float32, g)
    values, indices = parbake.top_k(x, 5, sorted=True)
    want = ranked(x)[:, :5]
    if not torch.equal(indices, want) or not same(values, x.gather(1, want)):
        wrong("top_k of 70001 rows")
    if not same(parbake.top_k_mask_logits(x, 5), torch.where(mask(x, 5), x, -torch.inf)):
        wrong("top_k_mask_logits of 70001 rows")
    if a.quick:
        return 2
    rows, cols = 16500, 131072
    x = torch.empty(rows, cols, dtype=torch.bfloat16, device=DEVICE)
    for part in x.split(1000):
        part.copy_(torch.randn(part.shape, device=DEVICE, generator=g))
    _, indices = parbake.top_k(x, 100, sorted=True)
    masked = parbake.top_k_mask_logits(x, 100)
    for row in (0, 1, rows // 2, rows - 2, rows - 1):
        want = ranked(x[row])[:100]
        if not torch.equal(indices[row], want) or not torch.equal((masked[row] > -torch.inf).nonzero()[:, 0], want.sort().values):
            wrong(f"row {row} of more than 2^31 elements")
    return 4


def check_repeated(a, g, wrong):
    """flashinfer #3610: nothing is left over from a launch, and nothing depends on when blocks run."""
    x = scores("ties", 48, 131072, torch.bfloat16, g)
    probs = x.float().softmax(dim=1)
    calls = [
        lambda: parbake.top_k(x, 2048),
        lambda: parbake.top_k(x, 500, sorted=True),
        lambda: (parbake.top_k_mask_logits(x, 777),),
        lambda: (parbake.top_p_renorm_probs(probs, 0.9),),
        lambda: (parbake.top_k_renorm_probs(probs, 300),),
    ]
    first = [call() for call in calls]
    other = torch.cuda.Stream()
    noise = torch.randn(4096, 4096, device=DEVICE)
    for turn in range(40 if a.quick else 300):
        with torch.cuda.stream(other):
            torch.mm(noise, noise)  # takes multiprocessors away, so that blocks begin at other times
        i = turn % len(calls)
        if not all(torch.equal(x, y) for x, y in zip(calls[i](), first[i])):
            wrong(f"call {i} gave another result in turn {turn}")
            break
    torch.cuda.synchronize()
    return len(calls)


def check_graph(a, g, wrong):
    x = scores("normal", 16, 50000, torch.float32, g)
    parbake.top_k(x, 300)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values, indices = parbake.top_k(x, 300)
    for turn in range(20):
        x.copy_(scores(KINDS[turn % 5], 16, 50000, torch.float32, g))
        graph.replay()
        want = ranked(x)[:, :300].sort(dim=1).values
        if not torch.equal(indices, want) or not same(values, x.gather(1, want)):
            wrong(f"replay {turn} of a graph")
    return 1


CHECKS = [check_top_k, check_transforms, check_rows, check_large, check_repeated, check_graph]


def timed(call, inputs):
    """Microseconds of a call, over inputs that are used in turn and do not fit the L2 together."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for x in inputs:
            call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(10):
            call(inputs[i % len(inputs)])
    flush = torch.empty(128 << 20, dtype=torch.int32, device=DEVICE)
    samples = []
    for _ in range(30):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 100)
    return statistics.median(samples)


def bench(a, g):
    try:
        import flashinfer
    except ImportError:
        flashinfer = None
    rows = []

    def line(what, x, moved, ours, **others):
        copies = max(3, min(10, (200 << 20) // (x.numel() * x.element_size()) + 1))
        inputs = [x] + [x[torch.randperm(x.shape[0], device=DEVICE)].clone() for _ in range(copies - 1)]
        row = {"what": what, "pass_us": moved / ROOF * 1e6, "parbake_us": timed(ours, inputs)}
        for name, call in others.items():
            if call is not None:
                try:
                    row[name + "_us"] = timed(call, inputs)
                except Exception as e:  # a peer that cannot do it is no failure of ours
                    row[name + "_error"] = str(e).splitlines()[0]
        rows.append(row)
        print("  " + what.ljust(52) + "  ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if k != "what"))

    for name, r, n, k in (
        ("bf16", 64, 131072, 2048), ("bf16", 64, 131072, 256), ("f32", 64, 131072, 2048), ("f32", 1, 8192, 512),
        ("f32", 1, 65536, 512), ("f32", 16, 8192, 512), ("f32", 16, 65536, 512), ("bf16", 1, 131072, 2048),
        ("f32", 4096, 256, 8), ("bf16", 16384, 128, 8), ("f32", 256, 151936, 50),
    ):
        x = scores("normal", r, n, TYPES[name], g)
        for arranged in (False, True):
            peer = flashinfer and (lambda x: flashinfer.top_k(x, k, sorted=arranged))
            line(f"top_k [{r},{n}] {name} k {k}" + (" sorted" if arranged else ""), x, x.nbytes,
                 lambda x: parbake.top_k(x, k, sorted=arranged), torch=lambda x: torch.topk(x, k, sorted=arranged), flashinfer=peer)
    for r, n in ((1, 128256), (64, 128256), (256, 151936)):
        logits = scores("normal", r, n, torch.float32, g) * 3
        probs = logits.softmax(dim=1)
        s = flashinfer and flashinfer.sampling
        line(f"top_k_mask_logits [{r},{n}] f32 k 50", logits, 2 * logits.nbytes, lambda x: parbake.top_k_mask_logits(x, 50),
             flashinfer=s and (lambda x: s.top_k_mask_logits(x, 50)))
        line(f"top_k_renorm_probs [{r},{n}] f32 k 50", probs, 2 * probs.nbytes, lambda x: parbake.top_k_renorm_probs(x, 50),
             flashinfer=s and (lambda x: s.top_k_renorm_probs(x, 50)))
        line(f"top_p_renorm_probs [{r},{n}] f32 p 0.9", probs, 2 * probs.nbytes, lambda x: parbake.top_p_renorm_probs(x, 0.9),
             flashinfer=s and (lambda x: s.top_p_renorm_probs(x, 0.9)))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short lists")
    parser.add_argument("--bench", action="store_true", help="times as well")
    parser.add_argument("--only", help="checks whose name contains this word")
    parser.add_argument("--json", help="where results are written")
    a = parser.parse_args()
    g = torch.Generator(DEVICE).manual_seed(7)
    failures, report = [], {}
    for check in CHECKS:
        name = check.__name__.removeprefix("check_")
        if a.only and a.only not in name:
            continue
        before = len(failures)
        n = check(a, g, failures.append)
        report[name] = {"cases": n, "wrong": failures[before:]}
        print(f"{'ok' if len(failures) == before else 'WRONG':5} {name:12} {n} cases")
        for text in failures[before:][:5]:
            print("      " + text)
    if a.bench:
        report["bench"] = bench(a, g)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(report, f, indent=1)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
