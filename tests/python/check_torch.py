"""PyTorch: compiled functions, gradients, subclasses; on a GPU graphs, streams, devices and large tensors."""

from harness import Setup, Torch, check, expect_near, norm, random

import parbake

TARGET = "host" if Setup.device == "cpu" else None


def tensors(dtype="f16", rows=3, hidden=64, seed=0):
    framework = Torch()
    values = random((rows, hidden), dtype, seed), random((rows, hidden), dtype, seed + 1), random((hidden,), dtype, seed + 2)
    return framework, values, [framework.make(v, dtype) for v in values]


def compiled(backend, dynamic):
    """Every kind of function in a graph without breaks: returning, in place, with out=, and over its own input."""
    import torch

    torch._dynamo.reset()

    def returns(x, w):
        return parbake.rmsnorm(x * 1, w, target=TARGET) * 2

    def in_place(x, residual, w):
        x, residual = x.clone(), residual.clone()
        parbake.gemma_fused_add_rmsnorm(x, residual, w, 1e-5, target=TARGET)
        return x * 1, residual

    def on_arguments(x, residual, w):
        parbake.fused_add_rmsnorm(x, residual, w, target=TARGET)

    def with_out(x, w):
        out = torch.empty_like(x)
        assert parbake.norm.gemma_rmsnorm(x, w, out=out, target=TARGET) is out
        return out

    def over_itself(x, w):
        x = x.clone()
        return parbake.rmsnorm(x, w, out=x, target=TARGET)

    wrap = {f: torch.compile(f, fullgraph=True, backend=backend, dynamic=dynamic)
            for f in (returns, in_place, on_arguments, with_out, over_itself)}
    torch._dynamo.utils.counters.clear()
    for rows in (3, 5, 9):
        framework, (x, residual, weight), (a, b, w) = tensors(rows=rows, seed=rows)
        read = framework.read
        expect_near(read(wrap[returns](a, w)) / 2, norm(x, weight), "f16")
        expect_near(read(wrap[with_out](a, w)), norm(x, weight, bias=1.0), "f16")
        expect_near(read(wrap[over_itself](a, w)), norm(x, weight), "f16")
        y, total = wrap[in_place](a, b, w)
        expect_near(read(total), x + residual, "f16")
        expect_near(read(y), norm(x + residual, weight, 1e-5, 1.0), "f16")
        assert (read(a) == x).all() and (read(b) == residual).all()
        wrap[on_arguments](a, b, w)
        expect_near(read(b), x + residual, "f16")
        expect_near(read(a), norm(x + residual, weight), "f16")
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs <= (5 if dynamic else 10), f"{graphs} graphs for five functions"


@check("tvm_ffi", "torch")
def compiled_by_dynamo():
    compiled("eager", None)
    compiled("eager", True)


@check("tvm_ffi", "torch")
def compiled_by_aot_autograd():
    compiled("aot_eager", None)
    compiled("aot_eager", True)


@check("tvm_ffi", "torch")
def compiled_by_inductor():
    compiled("inductor", True)


@check("tvm_ffi", "torch")
def compiled_before_anything_was_called():
    from check_threads import alone

    place = "cuda" if Setup.device == "cuda" else "cpu"
    said = alone(
        "from parbake import rmsnorm\n"
        "import torch\n"
        "@torch.compile(fullgraph=True, backend='aot_eager')\n"
        f"def f(x, w): return rmsnorm(x, w, target={TARGET!r})\n"
        f"print(abs(f(torch.ones(2, 64, device='{place}'), torch.ones(64, device='{place}')) - 1).max().item() < 1e-5)\n"
    )
    assert said == "True", said


@check("tvm_ffi", "torch")
def operators_pass_the_checks_of_pytorch():
    import torch

    from parbake._torch import define

    define()
    _, _, (x, residual, w) = tensors()
    calls = {
        "rmsnorm": (x, w, 1e-6, TARGET),
        "gemma_rmsnorm_out": (x, w, 1e-6, torch.empty_like(x), TARGET),
        "fused_add_rmsnorm": (x, residual, w, 1e-6, TARGET),
    }
    for name, arguments in calls.items():
        outcome = torch.library.opcheck(getattr(torch.ops.parbake, name).default, arguments)
        assert set(outcome.values()) == {"SUCCESS"}, outcome


@check("tvm_ffi", "torch")
def exported_and_faked():
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    _, _, (x, _, w) = tensors()

    class Model(torch.nn.Module):
        def forward(self, x, w):
            return parbake.rmsnorm(x, w, target=TARGET)

    program = torch.export.export(Model(), (x, w))
    assert "parbake.rmsnorm" in str(program.graph)
    assert torch.equal(program.module()(x, w), parbake.rmsnorm(x, w, target=TARGET))
    with FakeTensorMode() as mode:
        fake = parbake.rmsnorm(mode.from_tensor(x), mode.from_tensor(w), target=TARGET)
        assert fake.shape == x.shape and type(fake) is not torch.Tensor


@check("tvm_ffi", "torch")
def gradients_are_refused_where_they_are_recorded():
    import torch

    framework, (v, old, u), (x, residual, w) = tensors("f32")
    parameter = torch.nn.Parameter(w)

    @torch.compile(backend="eager")
    def in_a_graph(x, residual, w):
        parbake.fused_add_rmsnorm(x, residual, w, target=TARGET)

    for call in (
        lambda: in_a_graph(x, residual, parameter),
        lambda: parbake.rmsnorm(x, parameter, target=TARGET),
        lambda: parbake.rmsnorm(x.clone().requires_grad_(), w, target=TARGET),
        lambda: parbake.fused_add_rmsnorm(x, residual, parameter, target=TARGET),
    ):
        try:
            call()
        except ValueError as error:
            assert "requires_grad=True" in str(error) and "no_grad" in str(error), error
        else:
            raise AssertionError("a gradient was lost in silence")
    assert (framework.read(x) == v).all() and (framework.read(residual) == old).all()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            expect_near(framework.read(parbake.rmsnorm(x, parameter, target=TARGET)), norm(v, u), "f32")


@check("tvm_ffi", "torch", "cuda")
def captured_and_replayed():
    import torch

    framework, (x, _, weight), (a, _, w) = tensors("bf16", 64, 4096)
    out, halves = torch.empty_like(a), torch.empty_like(a)
    parbake.prepare("rmsnorm", dtype="bf16")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        parbake.rmsnorm(a, w, out=out)
        halves.copy_(out / 2)
    for i in range(1000):
        if i % 100 == 0:
            out.fill_(float("nan"))
        graph.replay()
    torch.cuda.synchronize()
    expect_near(framework.read(out), norm(x, weight), "bf16")
    assert torch.equal(halves, out / 2)


@check("tvm_ffi", "torch", "cuda")
def queued_on_the_current_stream():
    import torch

    framework, (x, _, weight), (a, _, w) = tensors("f16", 64, 4096)
    parbake.rmsnorm(a, w)
    torch.cuda.synchronize()
    stream, late = torch.cuda.Stream(), torch.zeros_like(a)
    with torch.cuda.stream(stream):
        # The input is there only when this stream has come that far.
        torch.cuda._sleep(1_000_000_000)
        late.copy_(a)
        out = parbake.rmsnorm(late, w)
        assert not stream.query(), "the call waited for the GPU"
    stream.synchronize()
    expect_near(framework.read(out), norm(x, weight), "f16")


@check("tvm_ffi", "torch", "two GPUs")
def another_device_than_the_current_one():
    import threading

    import torch

    framework, (x, _, weight), (a, _, w) = tensors("f16")
    findings = []

    def work():
        torch.cuda.set_device(0)
        out = parbake.rmsnorm(a.to("cuda:1"), w.to("cuda:1"))
        findings.append((out, torch.cuda.current_device()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    out, current = findings[0]
    assert out.device.index == 1 and current == 0 and torch.cuda.current_device() == 0
    expect_near(framework.read(out), norm(x, weight), "f16")


@check("tvm_ffi", "torch", "cuda")
def more_than_two_thousand_million_elements():
    import torch

    rows, hidden = 40000, 65536
    assert rows * hidden > 2**31
    x = torch.empty(rows, hidden, dtype=torch.bfloat16, device="cuda").normal_()
    weight = torch.randn(hidden, dtype=torch.bfloat16, device="cuda")
    sample = torch.tensor([0, 1, 32767, 32768, rows - 2, rows - 1], device="cuda")
    framework = Torch()
    before = framework.read(x[sample])
    assert parbake.rmsnorm(x, weight, out=x) is x
    expect_near(framework.read(x[sample]), norm(before, framework.read(weight)), "bf16")


@check("tvm_ffi", "torch", "cuda")
def a_call_costs_little():
    import statistics
    import time

    import torch

    _, _, (x, _, w) = tensors("bf16", 1, 1024)
    out = torch.empty_like(x)

    def median(call):
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(200):
                call()
            times.append((time.perf_counter() - began) / 200 * 1e6)
        return statistics.median(times)

    rows = {
        "parbake.rmsnorm(x, w, out=o)": lambda: parbake.rmsnorm(x, w, out=out),
        "parbake.rmsnorm(x, w)": lambda: parbake.rmsnorm(x, w),
        "torch.nn.functional.rms_norm": lambda: torch.nn.functional.rms_norm(x, (1024,), w),
    }
    took = {}
    with torch.no_grad():
        for name, call in rows.items():
            call()
            took[name] = median(call)
            print(f"  host time per call: {name} {took[name]:.2f} µs")
    ours, *_, theirs = took.values()
    assert ours < theirs, "slower than PyTorch's own"
