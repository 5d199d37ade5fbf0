#!/usr/bin/env python3
"""Checks and times the ops that draw tokens on a GPU. Needs PyTorch with CUDA and the package parbake.

    python3 tests/gpu/sampling.py [--quick] [--bench] [--json FILE]

Frequencies: χ² over bins merged to at least 50 expected counts must have a probability above 1e-6 for three seeds of
five million draws (--quick: 500,000) of one row, taken by `indices`; draws in which 2 % of a frequent token's are
another's must fail the same test. Filters: no token outside, against a sort. Seeds and offsets from device memory, a
graph replayed 1,000 times, equal results of equal calls, more rows than 65535, generators that advance as FlashInfer's.

--bench times softmax and the samplers with a cold L2: the median of 50 replays of a graph of ten calls over rotating
inputs, and beside it the time that one pass over the memory takes at 4.27 TB/s.
"""

import argparse
import json
import math
import statistics
import sys

import torch

import parbake

DEVICE = "cuda"
ROOF = 4.27e12


def excess(tokens, probs):
    """Standard deviations by which χ² is too large (Wilson and Hilferty); more than 4.753 is a probability of 1e-6."""
    counts = torch.bincount(tokens.long(), minlength=len(probs)).double().cpu()
    expected = probs.double().cpu() / probs.double().sum().cpu() * tokens.numel()
    if counts[expected == 0].any():
        return math.inf
    # Bins in the order of the probabilities, so that few are merged.
    order = expected.argsort(descending=True)
    chi, bins, seen, want = 0.0, 0, 0.0, 0.0
    for count, e in zip(counts[order].tolist(), expected[order].tolist()):
        seen, want = seen + count, want + e
        if want >= 50:
            chi, bins, seen, want = chi + (seen - want) ** 2 / want, bins + 1, 0.0, 0.0
    degrees = bins - 1
    spread = 2 / (9 * degrees)
    return ((chi / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


LIMIT = 4.753


def distribution(vocab, scale, seed=0):
    g = torch.Generator(DEVICE).manual_seed(seed)
    return (torch.randn(1, vocab, device=DEVICE, generator=g) * scale).softmax(dim=1)


def kept_tokens(probs, top_k=None, top_p=1.0, min_p=0.0, top_k_first=True):
    """What the filters keep of a row, in float64; and what rounding might."""
    p, order = probs.double().sort(descending=True, stable=True)
    before = p.cumsum(0) - p
    k = min(top_k or len(p), len(p))
    total = p[:k].sum() if top_k_first else p.sum()
    place = torch.arange(len(p), device=p.device)

    def keep(slack):
        good = (place < k) & (p >= min_p * p[0] * (1 - slack))
        good &= (before < top_p * total + slack * total) if top_p < 1 else True
        good[0] = True
        out = torch.zeros(len(p), dtype=torch.bool, device=p.device)
        out[order[good]] = True
        return out

    return keep(0.0), keep(4e-6)


CALLS = {
    "probs": (lambda x, **o: parbake.sampling_from_probs(x, **o), {}),
    "logits": (lambda x, **o: parbake.sampling_from_logits(x.log(), **o), {}),
    "top_p 0.9": (lambda x, **o: parbake.top_p_sampling_from_probs(x, 0.9, **o), {"top_p": 0.9}),
    "top_k 50": (lambda x, **o: parbake.top_k_sampling_from_probs(x, 50, **o), {"top_k": 50}),
    "min_p 0.1": (lambda x, **o: parbake.min_p_sampling_from_probs(x, 0.1, **o), {"min_p": 0.1}),
    "top_k_first": (lambda x, **o: parbake.top_k_top_p_sampling_from_probs(x, 100, 0.8, **o),
                    {"top_k": 100, "top_p": 0.8}),
    "joint": (lambda x, **o: parbake.top_k_top_p_sampling_from_probs(x, 100, 0.5, filter_apply_order="joint", **o),
              {"top_k": 100, "top_p": 0.5, "top_k_first": False}),
    "logits top_k_first": (lambda x, **o: parbake.top_k_top_p_sampling_from_logits(x.log(), 100, 0.8, **o),
                           {"top_k": 100, "top_p": 0.8}),
}


class Report:
    def __init__(self):
        self.rows, self.failed = [], 0

    def add(self, check, ok, detail=""):
        self.rows.append({"check": check, "ok": bool(ok), "detail": detail})
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {check:44} {detail}", flush=True)


def frequencies(report, draws):
    for vocab, scale in [(111, 1.0), (32000, 2.0), (128256, 3.0)]:
        probs = distribution(vocab, scale)
        indices = torch.zeros(draws, dtype=torch.int32, device=DEVICE)
        for name, (call, filters) in CALLS.items():
            exact, loose = kept_tokens(probs[0], **filters)
            want = torch.where(exact, probs[0], 0.0)
            worst = 0.0
            for seed in (1, 2, 3):
                tokens = call(probs, indices=indices, seed=seed, offset=0)
                outside = ~loose[tokens.long()]
                worst = max(worst, math.inf if outside.any() else excess(tokens[exact[tokens.long()]], want))
            report.add(f"frequencies {name} {vocab}", worst < LIMIT, f"{worst:.2f} of {LIMIT} sigma, {draws} draws")
            if name in ("probs", "logits"):
                top, other = want.argsort(descending=True)[:2].tolist()
                # The bias is seen if the bin has enough of the draws.
                if want[top] * draws > 3e5 or vocab == 111:
                    place = (tokens == top).nonzero()[::50, 0]
                    tokens[place] = other
                    sigma = excess(tokens, want)
                    report.add(f"a biased sampler is seen {name} {vocab}", sigma > LIMIT, f"{sigma:.2f} sigma")


def membership(report):
    for vocab in (111, 32000, 128256):
        for rows in (1, 99, 989):
            g = torch.Generator(DEVICE).manual_seed(rows)
            x = (torch.randn(rows, vocab, device=DEVICE, generator=g) * 2).softmax(dim=1)
            if vocab > 111:
                x[:, ::3] = 0
            # Every kind of tie: few distinct values.
            x[::4] = (x[::4] * vocab).ceil() / vocab
            for name, (call, filters) in CALLS.items():
                tokens = call(x, seed=5, offset=rows).long()
                bad = [r for r in range(0, rows, max(1, rows // 40)) if not kept_tokens(x[r], **filters)[1][tokens[r]]]
                zero = (x.gather(1, tokens[:, None]) == 0).sum().item()
                report.add(f"inside {name} [{rows},{vocab}]", not bad and zero == 0, f"outside {bad[:3]}, zeros {zero}")


def seeds(report):
    x = distribution(32000, 3.0).expand(64, -1).contiguous()
    call = parbake.top_p_sampling_from_probs

    def t(*values):
        return torch.tensor(values, dtype=torch.int64, device=DEVICE)

    a = call(x, 0.9, seed=11, offset=22)
    report.add("equal calls", torch.equal(a, call(x, 0.9, seed=11, offset=22)))
    report.add("seed and offset in memory", torch.equal(a, call(x, 0.9, seed=t(11), offset=t(22))))
    report.add("one for each row", torch.equal(a, call(x, 0.9, seed=t(*[11] * 64), offset=t(*[22] * 64))))
    report.add("unsigned", torch.equal(a, call(x, 0.9, seed=t(11).view(torch.uint64), offset=t(22).view(torch.uint64))))
    report.add("another offset", not torch.equal(a, call(x, 0.9, seed=11, offset=23)))
    report.add("another seed", not torch.equal(a, call(x, 0.9, seed=12, offset=22)))
    g = torch.Generator(DEVICE).manual_seed(7)
    before = g.get_state().view(torch.int64).tolist()
    b = call(x, 0.9, generator=g)
    after = g.get_state().view(torch.int64).tolist()
    report.add("a generator advances", after == [before[0], before[1] + 64 * 32], f"{before} {after}")
    report.add("a generator gives fresh numbers", not torch.equal(b, call(x, 0.9, generator=g)))
    g.manual_seed(7)
    report.add("a generator repeats", torch.equal(b, call(x, 0.9, generator=g)))


def graphs(report):
    """Bug: a replayed graph that gives the same tokens again."""
    x = distribution(32000, 3.0).expand(256, -1).contiguous()
    seed, offset = (torch.zeros(1, dtype=torch.int64, device=DEVICE) for _ in range(2))
    parbake.top_k_top_p_sampling_from_probs(x, 100, 0.95, seed=seed, offset=offset)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = parbake.top_k_top_p_sampling_from_probs(x, 100, 0.95, seed=seed, offset=offset)
        offset += 1
    offset.zero_()
    seen, same = set(), 0
    for _ in range(1000):
        graph.replay()
        key = tuple(tokens.tolist())
        same += key in seen
        seen.add(key)
    eager = parbake.top_k_top_p_sampling_from_probs(x, 100, 0.95, seed=0, offset=999)
    report.add("a graph replayed 1,000 times", same == 0 and torch.equal(eager, tokens), f"{same} repeated")


def sizes(report):
    """Grids beyond 65535, and rows whose offsets exceed 2^31."""
    x = distribution(111, 1.0)
    rows = 70000
    tokens, valid = parbake.top_k_sampling_from_probs(x.expand(rows, -1).contiguous(), 5, seed=1, offset=0,
                                                      return_valid=True)
    ok = valid.all() and kept_tokens(x[0], top_k=5)[0][tokens.long()].all()
    report.add("70000 rows", ok)
    probs = parbake.softmax(torch.zeros(rows, 111, device=DEVICE))
    report.add("softmax of 70000 rows", torch.allclose(probs, torch.full_like(probs, 1 / 111)))
    vocab = 131072
    rows = 2**31 // vocab + 3
    big = torch.zeros(rows, vocab, device=DEVICE)
    big[torch.arange(rows), torch.arange(rows) * 7 % vocab] = 1
    tokens = parbake.top_p_sampling_from_probs(big, 0.9, seed=1, offset=0)
    report.add("more than 2^31 elements", torch.equal(tokens.long().cpu(), torch.arange(rows) * 7 % vocab))


def special(report):
    """Bugs 35, 37, 38, 40, 41."""
    for vocab in (111, 32000, 128256):
        x = distribution(vocab, 1.0).repeat(4, 1)
        x[1] = float("nan")
        x[2] = 0
        x[3] = 0
        x[3, vocab - 1] = 1e-41
        for name, (call, _) in CALLS.items():
            if name.startswith("logits"):
                continue
            tokens, valid = call(x, seed=1, offset=2, return_valid=True)
            ok = valid.tolist() == [True, False, False, True] and tokens[1:].tolist() == [0, 0, vocab - 1]
            report.add(f"NaN, nothing, subnormal: {name} {vocab}", ok, f"{tokens.tolist()} {valid.tolist()}")
        logits = torch.randn(6, vocab, device=DEVICE)
        logits[0, 1:] = -math.inf
        logits[1] = -math.inf
        logits[2, 0] = math.nan
        logits[3, : vocab // 2] = -math.inf
        t = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.0, -1.0], device=DEVICE)
        probs = parbake.softmax(logits, t)
        ok = probs[0, 0] == 1 and not probs[0, 1:].any() and not probs[1].any() and probs[2].isnan().all()
        ok = ok and torch.allclose(probs[3], (logits[3].double() * 2).softmax(0).float(), atol=1e-6, rtol=1e-5)
        greedy = torch.nn.functional.one_hot(logits[4:].argmax(1), vocab).float()
        report.add(f"softmax of special rows {vocab}", ok and torch.equal(probs[4:], greedy))
        for dtype in (torch.float16, torch.bfloat16):
            want = logits[3:4].to(dtype).double().softmax(1).float()
            got = parbake.softmax(logits[3:4].to(dtype))
            report.add(f"softmax {dtype} {vocab}", torch.allclose(got, want, atol=1e-6, rtol=1e-5))


def chains(report):
    """The tokens of accepted and refused drafts together are distributed as the target's."""
    rows, vocab = 400_000, 111
    draft, target = distribution(vocab, 1.0, 1), distribution(vocab, 1.5, 2)
    ids = torch.multinomial(draft[0], rows, replacement=True).int()[:, None]
    tokens, accepted, emitted = parbake.chain_speculative_sampling(
        draft[None].expand(rows, 1, vocab).contiguous(), ids, target[None].expand(rows, 2, vocab).contiguous(),
        seed=3, offset=4)
    sigma = excess(tokens[:, 0], target[0])
    took = emitted == 1
    ok = sigma < LIMIT and torch.equal(accepted, emitted) and torch.equal(tokens[took, 0], ids[took, 0])
    second = excess(tokens[took, 1], target[0])
    report.add("chains", ok and second < LIMIT and (tokens[~took, 1] == -1).all(), f"{sigma:.2f}, {second:.2f} sigma")


def time_us(calls):
    """Microseconds of a call: the median over replays of a graph in which each input comes once."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    flush = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
    times = []
    for _ in range(50):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(times)


def bench(report):
    seed = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    fixed = {"seed": seed, "offset": seed}
    kinds = {
        "sampling_from_probs": lambda x: parbake.sampling_from_probs(x, **fixed),
        "top_p 0.9": lambda x: parbake.top_p_sampling_from_probs(x, 0.9, **fixed),
        "top_k 50": lambda x: parbake.top_k_sampling_from_probs(x, 50, **fixed),
        "top_k_first 50, 0.9": lambda x: parbake.top_k_top_p_sampling_from_probs(x, 50, 0.9, **fixed),
        "min_p 0.1": lambda x: parbake.min_p_sampling_from_probs(x, 0.1, **fixed),
        "logits": lambda x: parbake.sampling_from_logits(x, **fixed),
        "logits top_k_first 50, 0.9": lambda x: parbake.top_k_top_p_sampling_from_logits(x, 50, 0.9, **fixed),
        "softmax": lambda x: parbake.softmax(x),
    }
    for rows, vocab in [(1, 128256), (64, 128256), (256, 151936), (989, 32000), (64, 32000), (1, 32000)]:
        bytes_ = rows * vocab * 4
        n = max(3, min(10, int(4e9 // bytes_)))
        for name, call in kinds.items():
            logits = [torch.randn(rows, vocab, device=DEVICE) * 2 for _ in range(n)]
            inputs = logits if "logits" in name or name == "softmax" else [x.softmax(1) for x in logits]
            us = time_us([lambda x=x: call(x) for x in inputs])
            roof = bytes_ * (2 if name == "softmax" else 1) / ROOF * 1e6
            report.rows.append({"bench": name, "rows": rows, "vocab": vocab, "us": us, "roof_us": roof})
            print(f"{name:28} [{rows},{vocab}] {us:8.2f} us, one pass {roof:7.2f} us, {us / roof:6.2f} passes", flush=True)
            del logits, inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--json")
    a = parser.parse_args()
    report = Report()
    if a.bench:
        bench(report)
    else:
        for check in (seeds, special, graphs, sizes, membership, chains):
            check(report)
        frequencies(report, 500_000 if a.quick else 5_000_000)
        print(f"{len(report.rows) - report.failed} passed, {report.failed} failed")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(report.rows, f, indent=1)
    return report.failed != 0


if __name__ == "__main__":
    sys.exit(main())
