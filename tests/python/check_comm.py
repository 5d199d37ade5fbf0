"""Collectives of ranks that are threads of one process, and what is refused. tests/gpu/comm.py has ranks on GPUs."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

from check_references import program
from harness import CHECKOUT, Setup, check

RANKS = 3


def workspaces(comm, rows, hidden, dtype, ranks=RANKS):
    """A workspace for each rank, all on this device."""
    pools = [comm.Pool(rows, hidden, dtype, ranks, Setup.device) for _ in range(ranks)]
    handles = [pool.handle for pool in pools]
    return [pool.open(rank, handles) for rank, pool in enumerate(pools)]


def by_ranks(spaces, body):
    """What each rank returns, on a thread of its own."""
    results, errors = [None] * len(spaces), []

    def work(rank):
        try:
            results[rank] = body(rank, spaces[rank])
        except Exception as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(spaces))]
    [thread.start() for thread in threads]
    [thread.join(timeout=200) for thread in threads]
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    assert not errors, errors[0]
    return results


def setup():
    import torch

    from parbake import comm

    torch.manual_seed(3)
    return torch, comm


@check("tvm_ffi", "torch", "host", "cpu")
def sums_gathers_and_scatters():
    torch, comm = setup()
    spaces = workspaces(comm, 40, 512, torch.bfloat16)
    for dtype, rows in ((torch.bfloat16, 5), (torch.float32, 1), (torch.float16, 40), (torch.bfloat16, 0)):
        x = [torch.randn(rows, 512, device=Setup.device).to(dtype) for _ in range(RANKS)]
        if dtype is torch.float32:
            x = [v[:, :256].contiguous() for v in x]
        total = sum(v.float() for v in x).to(dtype)

        def body(rank, space):
            out = comm.all_reduce(x[rank], space)
            again = x[rank].clone()
            assert comm.all_reduce(again, space, out=again) is again
            return out, again, comm.all_gather(x[rank], space)

        for out, again, gathered in by_ranks(spaces, body):
            assert out.shape == x[0].shape and torch.equal(out, total) and torch.equal(again, total)
            assert torch.equal(gathered, torch.stack(x))
    x = [torch.randn(RANKS, 7, 32, device=Setup.device) for _ in range(RANKS)]
    got = by_ranks(spaces, lambda rank, space: comm.reduce_scatter(x[rank], space))
    assert torch.equal(torch.stack(got), x[0] + x[1] + x[2])
    [space.destroy() for space in spaces]


@check("tvm_ffi", "torch", "host", "cpu")
def sums_with_residual_and_norm():
    torch, comm = setup()
    patterns, (rows, hidden) = comm.AllReduceFusionPattern, (6, 1024)
    spaces = workspaces(comm, rows, hidden, torch.bfloat16)
    x = [torch.randn(rows, hidden, device=Setup.device, dtype=torch.bfloat16) for _ in range(RANKS)]
    residual = torch.randn(rows, hidden, device=Setup.device, dtype=torch.bfloat16)
    weight = torch.rand(hidden, device=Setup.device, dtype=torch.bfloat16)
    s = sum(v.float() for v in x) + residual.float()
    y = (s.double() * torch.rsqrt(s.double().square().mean(-1, keepdim=True) + 1e-5)) * weight.double()
    scale = torch.tensor([0.02], device=Setup.device)

    def body(rank, space):
        common = {"residual_in": residual, "rms_gamma": weight, "rms_eps": 1e-5}
        total = comm.allreduce_fusion(x[rank], space, patterns.kAllReduce)
        kept, both = torch.empty_like(residual), torch.empty_like(residual)
        normal = comm.allreduce_fusion(x[rank], space, patterns.kARResidualRMSNorm, residual_out=kept, **common)
        narrow = comm.allreduce_fusion(x[rank], space, patterns.kARResidualRMSNormFP8Quant, scale_factor=0.02, **common)
        again = comm.allreduce_fusion(
            x[rank], space, patterns.kARResidualRMSNormOutFP8Quant, norm_out=both, scale_factor=scale, **common
        )
        assert narrow.dtype is torch.float8_e4m3fn and torch.equal(narrow.view(torch.uint8), again.view(torch.uint8))
        assert torch.equal(normal, both)
        return total, kept, normal, narrow.float()

    first = None
    for total, kept, normal, narrow in by_ranks(spaces, body):
        assert torch.equal(total, sum(v.float() for v in x).bfloat16()) and torch.equal(kept, s.bfloat16())
        assert torch.allclose(normal.double(), y, 1e-2, 1e-3)
        assert torch.allclose(narrow.double(), (y / 0.02).clamp(-448, 448), 0.07, 1e-2)
        first = (normal, narrow) if first is None else first
        assert torch.equal(first[0], normal) and torch.equal(first[1], narrow)


@check("tvm_ffi", "torch", "host", "cpu")
def a_workspace_is_large_enough_for_what_it_was_made_for():
    """Here by a group of one, whose results are its inputs."""
    torch, comm = setup()
    for rows, hidden in ((1, 8), (129, 64), (1, 16_384), (640, 96)):
        (space,) = workspaces(comm, rows, hidden, torch.bfloat16, 1)
        x = torch.randn(rows, hidden, dtype=torch.bfloat16)
        assert torch.equal(comm.all_reduce(x, space), x)
        assert torch.equal(comm.all_gather(x, space), x[None])
        assert torch.equal(comm.reduce_scatter(x[None], space), x)
        kept, zero, one = torch.empty_like(x), torch.zeros_like(x), torch.ones(hidden, dtype=torch.bfloat16)
        comm.allreduce_fusion(
            x, space, comm.AllReduceFusionPattern.kARResidualRMSNorm, residual_in=zero, residual_out=kept, rms_gamma=one
        )
        assert torch.equal(kept, x)


@check("tvm_ffi", "torch", "host")
def what_does_not_fit_is_refused():
    torch, comm = setup()
    import parbake

    def refused(kind, part, work):
        try:
            work()
        except kind as error:
            assert part in str(error), f"no {part!r} in {error}"
            return
        raise AssertionError(f"nothing was refused: {part}")

    spaces = workspaces(comm, 4, 128, torch.float16, 2)
    x = torch.randn(4, 128, device=Setup.device).half()
    refused(TypeError, "NCCL", lambda: comm.all_reduce(x, None))
    refused(ValueError, "contiguous", lambda: comm.all_reduce(x.t(), spaces[0]))
    refused(ValueError, "a multiple of 8 elements", lambda: comm.all_reduce(x[0, :9].clone(), spaces[0]))
    refused(ValueError, "bytes for this call", lambda: comm.all_reduce(x.repeat(2000, 1), spaces[0]))
    refused(TypeError, "dtype", lambda: comm.all_reduce(x.double(), spaces[0]))
    refused(ValueError, "[2, ...]", lambda: comm.reduce_scatter(x, spaces[0]))
    refused(ValueError, "[2, *input.shape]", lambda: comm.all_gather(x, spaces[0], x))
    refused(NotImplementedError, "pattern", lambda: comm.allreduce_fusion(x, spaces[0], 3))
    refused(NotImplementedError, "scale_out", lambda: comm.allreduce_fusion(x, spaces[0], 1, scale_out=x))
    refused(TypeError, "residual_in", lambda: comm.allreduce_fusion(x, spaces[0], 1))
    spaces[1].destroy()
    refused(ValueError, "destroyed", lambda: comm.all_reduce(x, spaces[1]))

    pool = comm.Pool(4, 128, torch.float16, 2, Setup.device)
    other = comm.Pool(4000, 128, torch.float16, 2, Setup.device)
    refused(ValueError, "2 handles of 160 bytes", lambda: pool.open(0, [pool.handle]))
    refused(ValueError, "PB-2160", lambda: pool.open(0, [pool.handle, other.handle]))
    refused(ValueError, "PB-2160", lambda: pool.open(1, [pool.handle, other.handle]))
    same = bytearray(comm.Pool(4, 128, torch.float16, 2, Setup.device).handle)
    same[48:64] = b"h" * 16
    refused(parbake.Error, "another host", lambda: pool.open(0, [pool.handle, bytes(same)]))
    refused(ValueError, "world_size", lambda: comm.Pool(4, 128, torch.float16, 9, Setup.device))
    refused(TypeError, "dtype", lambda: comm.Pool(4, 128, None, 2, Setup.device))


def example():
    """The first example of docs/comm.md; the second one needs processes."""
    page = (CHECKOUT / "docs/comm.md").read_text(encoding="utf-8")
    return re.search(r"^```python\n(.*?)^```", page, re.M | re.S)[1]


@check("tvm_ffi", "torch", "host", "cpu")
def the_page():
    exec(compile(example(), "docs/comm.md", "exec"), {})


@check("tvm_ffi", "torch", "host", "cpu")
def a_call_of_several_ranks_is_logged_and_not_replayed():
    """A replay alone would wait for ranks that are gone, at addresses that were theirs."""
    with tempfile.TemporaryDirectory() as folder:
        paths = os.pathsep.join(path for path in sys.path if path)
        settings = {"PARBAKE_LOG": "10", "PARBAKE_LOG_DEST": f"{folder}/log", "PARBAKE_DUMPS": f"{folder}/dumps"}
        words = [sys.executable, "-c", example()]
        ran = subprocess.run(words, env={**os.environ, "PYTHONPATH": paths, **settings}, capture_output=True, text=True, timeout=200)
        assert ran.returncode == 0, ran.stderr
        dumps = sorted(path.parent for path in pathlib.Path(folder, "dumps").glob("*/call.json"))
        assert len(dumps) == 2, dumps
        for dump in dumps:
            ran = subprocess.run([program(), "replay", dump, "--target", "host"], capture_output=True, text=True, timeout=60)
            assert ran.returncode and "PB-2135" in ran.stderr and "2 ranks" in ran.stderr, ran.stdout + ran.stderr
