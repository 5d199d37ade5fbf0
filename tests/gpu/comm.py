#!/usr/bin/env python3
"""Checks and times collectives on GPUs, through `parbake.comm`. Needs PyTorch with CUDA; the ranks are processes of their own.

    python3 tests/gpu/comm.py [--ranks N] [--only WORD] [--bench] [--no-check] [--limit SECONDS] [--json FILE]

With fewer GPUs than ranks several ranks share one, through the same handles of the driver: that checks all but the way over
NVLink. It is slow, because a GPU runs processes in turns, and nothing is timed then.

Checks hold every op to sums in float64 and all ranks to the same bits, in all types and over sizes where blocks, shares and
paths begin and end; they replay a graph of several calls 1,000 times with other data and ranks that come late by chance, both
by one shot and by two; they take turns with ops and sizes on one pool; they let a subgroup of ranks have a workspace of its
own. Each rank that fails or hangs ends the run: nothing waits longer than --limit seconds (300).

A rank that does not come, and one that calls something else, end the process of whoever waits: those checks run in children of
their own, which must fail, and soon.

--bench times the rows C1 to C6 in CUDA graphs, beside NCCL: 20 calls in a graph, the median of 15 replays, the slowest rank.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def parse():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--ranks", type=int, help="2 to 8; without it as many as there are GPUs, at least 2")
    words.add_argument("--only", default="", metavar="WORD", help="checks and rows whose name has it")
    words.add_argument("--bench", action="store_true")
    words.add_argument("--no-check", action="store_true")
    words.add_argument("--limit", type=float, default=300.0)
    words.add_argument("--json", metavar="FILE")
    words.add_argument("--child", nargs=3, metavar=("NAME", "RANK", "PORT"), help=argparse.SUPPRESS)
    return words.parse_args()


class Rank:
    """This process: its rank, its GPU, and the group by which handles and results are exchanged."""

    def __init__(self, rank, ranks, port):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank, self.ranks = torch, dist, rank, ranks
        torch.cuda.set_device(rank % torch.cuda.device_count())
        self.shared = torch.cuda.device_count() < ranks
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=120)
        )

    def workspace(self, rows=2048, hidden=8192, dtype=None, **more):
        from parbake import comm

        return comm.create_workspace(rows, hidden, dtype or self.torch.bfloat16, device="cuda", **more)

    def data(self, shape, dtype, seed):
        """What each rank has: all ranks make all of it, so that each knows what is right."""
        made = []
        for rank in range(self.ranks):
            generator = self.torch.Generator(device="cuda").manual_seed(1000 * seed + rank)
            made.append(self.torch.randn(shape, device="cuda", generator=generator).to(dtype))
        return made

    def same(self, tensor):
        """Whether all ranks have the same bits of it."""
        own = tensor.contiguous().view(self.torch.uint8).cpu()
        first = own.clone()
        self.dist.broadcast(first, 0)
        return self.torch.equal(own, first)

    def end(self, space):
        self.torch.cuda.synchronize()
        self.dist.barrier()
        space.destroy()
        self.dist.destroy_process_group()


def total(torch, inputs):
    """The sum in the order of ranks, in f32, as the op says."""
    sum_ = inputs[0].float()
    for x in inputs[1:]:
        sum_ = sum_ + x.float()
    return sum_


# ---- checks: each is a function of a rank, and returns a short summary -------------------------------------------


def sums(rank):
    torch, count = rank.torch, 0
    from parbake import comm

    space = rank.workspace(512 if rank.shared else 2048)
    most = 1 << 21 if rank.shared else 1 << 24
    sizes = [8, 16, 504, 4096, 4104, 65_536, 65_544, 131_072, 262_144, 262_152, 1 << 20, (1 << 20) + 8, most]
    for turn, (dtype, elements) in enumerate((d, n) for d in (torch.bfloat16, torch.float16, torch.float32) for n in sizes):
        if elements * dtype.itemsize > 2 * most:
            continue
        inputs = rank.data((elements,), dtype, turn)
        out = comm.all_reduce(inputs[rank.rank], space)
        assert torch.equal(out, total(torch, inputs).to(dtype)), (dtype, elements)
        assert rank.same(out)
        wide = sum(x.double() for x in inputs)
        assert torch.allclose(out.double(), wide, 1e-2 if dtype is torch.bfloat16 else 1e-3, 1e-3)
        count += 1
    rank.end(space)
    return f"{count} sums of {rank.ranks} ranks"


def gathers(rank):
    torch, count = rank.torch, 0
    from parbake import comm

    space = rank.workspace(2048, 2048)
    for turn, elements in enumerate((16, 48, 4096, 65_552, 1 << 18)):
        for dtype in (torch.bfloat16, torch.float32, torch.float16):
            inputs = rank.data((rank.ranks, elements), dtype, turn)
            got = comm.all_gather(inputs[rank.rank][0].contiguous(), space)
            assert torch.equal(got, torch.stack([x[0] for x in inputs])), (dtype, elements)
            got = comm.reduce_scatter(inputs[rank.rank], space)
            assert torch.equal(got, total(torch, inputs).to(dtype)[rank.rank]), (dtype, elements)
            count += 2
    rank.end(space)
    return f"{count} calls"


def fused(rank):
    torch, count = rank.torch, 0
    from parbake import comm

    patterns, space = comm.AllReduceFusionPattern, rank.workspace(512, 16_384)
    for turn, (rows, hidden) in enumerate(((1, 128), (6, 6144), (138, 6144), (129, 8192), (3, 16_384), (500, 1024))):
        for dtype in (torch.bfloat16, torch.float16):
            inputs = rank.data((rows, hidden), dtype, turn)
            residual, weight = (v[0] for v in (rank.data((rows, hidden), dtype, 90), rank.data((hidden,), dtype, 91)))
            s = total(torch, inputs) + residual.float()
            y = s.double() * torch.rsqrt(s.double().square().mean(-1, keepdim=True) + 1e-6) * (weight.double() + 1)
            kept, norm = torch.empty_like(residual), torch.empty_like(residual)
            quant = comm.allreduce_fusion(
                inputs[rank.rank], space, patterns.kARResidualRMSNormOutFP8Quant, residual_out=kept, norm_out=norm,
                residual_in=residual, rms_gamma=weight, scale_factor=0.02, weight_bias=1.0,
            )  # fmt: skip
            assert torch.equal(kept, s.to(dtype)), (dtype, rows, hidden)
            assert torch.allclose(norm.double(), y, 1e-2, 1e-3) and rank.same(norm)
            assert torch.allclose(quant.double(), (y / 0.02).clamp(-448, 448), 0.07, 1e-2) and rank.same(quant)
            alone = comm.allreduce_fusion(
                inputs[rank.rank], space, patterns.kARResidualRMSNorm, residual_in=residual, rms_gamma=weight, weight_bias=1.0
            )
            assert torch.equal(alone, norm)
            count += 2
    rank.end(space)
    return f"{count} calls"


def graphs(rank, replays=None):
    """A graph of several calls, replayed with other data, by ranks that come late."""
    torch, chance = rank.torch, random.Random(rank.rank)
    from parbake import comm

    space = rank.workspace(512, 4096)
    replays = replays or (300 if rank.shared else 1000)
    sizes = [4096, 65_536, 1 << 19]
    buffers = [torch.zeros(n, dtype=torch.bfloat16, device="cuda") for n in sizes]
    outs = [torch.zeros_like(b) for b in buffers]
    gathered = torch.zeros(rank.ranks, sizes[0], dtype=torch.bfloat16, device="cuda")

    def calls():
        for x, out in zip(buffers, outs):
            comm.all_reduce(x, space, out=out)
        comm.all_gather(buffers[0], space, out=gathered)

    calls()
    torch.cuda.synchronize()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        calls()
    # Small whole numbers: sums are exact, and every rank knows what the others have.
    base = [torch.arange(n, device="cuda") % 13 for n in sizes]
    with torch.cuda.stream(stream):
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for turn in range(replays):
            if chance.random() < 0.1:
                time.sleep(chance.random() * 2e-3)
            for x, b in zip(buffers, base):
                x.copy_((b + turn + rank.rank) % 11)
            graph.replay()
            for out, b in zip(outs, base):
                wrong += (out != sum((b + turn + r) % 11 for r in range(rank.ranks)).to(out.dtype)).sum()
            for r in range(rank.ranks):
                wrong += (gathered[r] != ((base[0] + turn + r) % 11).to(gathered.dtype)).sum()
        stream.synchronize()
    assert wrong.item() == 0, f"{wrong.item()} elements are wrong in {replays} replays"
    rank.end(space)
    return f"{replays} replays"


def subgroups(rank):
    """Ranks of a group are counted within it: here in groups of two, if there are four."""
    torch, dist = rank.torch, rank.dist
    from parbake import comm

    if rank.ranks < 4:
        dist.destroy_process_group()
        return "skipped: needs 4 ranks"
    groups = [dist.new_group([first, first + 1]) for first in range(0, rank.ranks - 1, 2)]
    mine = min(rank.rank // 2, len(groups) - 1)
    spaces = []
    if rank.rank // 2 == mine:
        space = rank.workspace(64, 1024, group=groups[mine])
        inputs = rank.data((4096,), torch.float16, 5)[2 * mine : 2 * mine + 2]
        assert torch.equal(comm.all_reduce(inputs[rank.rank % 2], space), total(torch, inputs).half())
        spaces.append(space)
    torch.cuda.synchronize()
    dist.barrier()
    [space.destroy() for space in spaces]
    dist.destroy_process_group()
    return f"{len(groups)} groups of 2"


def absent(rank):
    """Rank 0 waits for ranks that never come: it must be told, and not for ever."""
    torch = rank.torch
    from parbake import comm

    space = rank.workspace(64, 1024, timeout_ms=500)
    if rank.rank:
        time.sleep(8)
        os._exit(0)
    began = time.perf_counter()
    try:
        comm.all_reduce(torch.ones(64, device="cuda"), space)
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - the driver's words are its own
        took = time.perf_counter() - began
        print("@@ " + json.dumps({"detail": f"told after {took:.1f} s: {str(error).splitlines()[0]}"}), flush=True)
        os._exit(0 if took < 6 else 1)
    raise AssertionError("nobody was told")


def differing(rank):
    """Ranks that call different things are told at once."""
    torch = rank.torch
    from parbake import comm

    space = rank.workspace(64, 1024)
    began = time.perf_counter()
    try:
        comm.all_reduce(torch.ones(64 if rank.rank else 128, device="cuda"), space)
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001
        took = time.perf_counter() - began
        print("@@ " + json.dumps({"detail": f"told after {took:.1f} s: {str(error).splitlines()[0]}"}), flush=True)
        os._exit(0)
    # With several ranks only those that see the difference are told; the others wait for them in vain.
    raise AssertionError("nobody was told")


CHECKS = {f.__name__: f for f in (sums, gathers, fused, graphs, subgroups, absent, differing)}
# By two shots what size and ranks would do in one, and the other way round.
FORCED = {f"{f.__name__} by {n} shots": (f, n) for f in (sums, graphs) for n in (1, 2)}


# ---- rows: what is timed ----------------------------------------------------------------------------------------


def reduce_row(elements):
    def make(rank, space, nccl):
        torch = rank.torch
        from parbake import comm

        # Zeros: what is summed up in place, again and again, would not stay finite.
        x = torch.zeros(elements, device="cuda").bfloat16()
        out, same = torch.empty_like(x), x.clone()
        return (lambda: comm.all_reduce(x, space, out=out)), (lambda: rank.dist.all_reduce(same, group=nccl))

    return make


def fused_row(rows, hidden):
    def make(rank, space, nccl):
        torch = rank.torch
        import parbake
        from parbake import comm

        pattern = comm.AllReduceFusionPattern.kARResidualRMSNorm
        x, residual, out = (torch.zeros(rows, hidden, device="cuda").bfloat16() for _ in range(3))
        weight, same = torch.ones(hidden, device="cuda").bfloat16(), x.clone()

        def ours():
            comm.allreduce_fusion(
                x, space, pattern, residual_in=residual, residual_out=residual, norm_out=out, rms_gamma=weight
            )

        def theirs():
            rank.dist.all_reduce(same, group=nccl)
            parbake.fused_add_rmsnorm(same, residual, weight)

        return ours, theirs

    return make


ROWS = {
    "C0 2 KB": reduce_row(1 << 10),
    "C1 16 KB": reduce_row(8192),
    "C2 512 KB": reduce_row(32 * 8192),
    "C2b 1 MB": reduce_row(64 * 8192),
    "C3 4 MB": reduce_row(256 * 8192),
    "C4 32 MB": reduce_row(2048 * 8192),
    "C5 fused [6, 6144]": fused_row(6, 6144),
    "C6 fused [138, 6144]": fused_row(138, 6144),
}


def timed(rank, call, calls=20, replays=15):
    """Microseconds of a call in a graph of several, of the slowest rank."""
    torch, dist = rank.torch, rank.dist
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            call()
    times = []
    for _ in range(replays + 3):
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    slowest = torch.tensor(statistics.median(times[3:]), dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def measure(rank, name):
    if rank.shared:
        rank.dist.destroy_process_group()
        return "skipped: needs a GPU for each rank", {}
    nccl, space = rank.dist.new_group(backend="nccl"), rank.workspace()
    ours, theirs = ROWS[name](rank, space, nccl)
    us, nccl_us = timed(rank, ours), timed(rank, theirs)
    rank.end(space)
    return f"{us:.1f} us, NCCL {nccl_us:.1f} us ({nccl_us / us:.2f}x), {rank.ranks} ranks", {"us": us, "nccl_us": nccl_us}


# ---- processes --------------------------------------------------------------------------------------------------


def child(given):
    name, rank, port = given.child
    rank = Rank(int(rank), given.ranks, port)
    found = {}
    if name in ROWS:
        detail, found = measure(rank, name)
    else:
        detail = (CHECKS.get(name) or FORCED[name][0])(rank)
    print("@@ " + json.dumps({"detail": detail, **found}), flush=True)


def run(name, given):
    """All ranks of a check; nobody is left behind."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = dict(os.environ)
    if name in FORCED:
        environment["PARBAKE_TACTICS"] = f"all_reduce:shots={FORCED[name][1]}"
    words = [sys.executable, __file__, "--ranks", str(given.ranks)]
    output = [subprocess.PIPE] * 2
    ranks = [
        subprocess.Popen([*words, "--child", name, str(r), str(port)], env=environment, stdout=output[0], stderr=output[1], text=True)
        for r in range(given.ranks)
    ]
    end, said = time.monotonic() + given.limit, {}
    failed = None
    try:
        for r, process in enumerate(ranks):
            out, err = process.communicate(timeout=max(0.1, end - time.monotonic()))
            lines = [line for line in out.splitlines() if line.startswith("@@ ")]
            if process.returncode and failed is None:
                failed = f"rank {r}: exit {process.returncode}: {(err or out).strip()[-1500:]}"
            if lines and not said:
                said = json.loads(lines[-1][3:])
    except subprocess.TimeoutExpired:
        failed = failed or f"a hang: nothing for {given.limit:.0f} s"
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()
    if failed or not said:
        return {"ok": False, "detail": failed or "no rank said anything"}
    return {"ok": True, **said}


def main():
    given = parse()
    if given.ranks is None:
        import torch

        given.ranks = min(max(torch.cuda.device_count(), 2), 8)
    if given.child:
        return child(given)
    names = [] if given.no_check else [*CHECKS, *FORCED]
    results = {}
    for name in [n for n in names + (list(ROWS) if given.bench else []) if given.only in n]:
        results[name] = run(name, given)
        print(("ok   " if results[name]["ok"] else "FAIL ") + f"{name}: {results[name]['detail']}", flush=True)
    failed = sum(not result["ok"] for result in results.values())
    print(f"{len(results) - failed} passed, {failed} failed")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results, indent=1))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
