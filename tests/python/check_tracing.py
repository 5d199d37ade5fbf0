"""PyTorch's subclasses, modes and tracers: what sees operators is given operators, everything else memory."""

from check_torch import TARGET, tensors
from harness import check, expect_near, norm

import parbake


def returns(x, w):
    return (parbake.rmsnorm(x, w, target=TARGET),)


def with_out(x, w):
    import torch

    out = torch.empty_like(x)
    parbake.gemma_rmsnorm(x, w, out=out, target=TARGET)
    return (out * 2,)


def in_place(x, w):
    x, residual = x.clone(), x * 3
    parbake.fused_add_rmsnorm(x, residual, w, target=TARGET)
    return x, residual


FUNCTIONS = (returns, with_out, in_place)


@check("tvm_ffi", "torch")
def subclasses_are_memory_unless_they_dispatch():
    import torch

    framework, (x, _, weight), (a, _, w) = tensors()
    disabled = {"__torch_function__": torch._C._disabled_torch_function_impl}
    seen = []

    def function(cls, func, types, args=(), kwargs=None):
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs or {})

    def dispatch(cls, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return torch.Tensor.__torch_dispatch__(func, types, args, kwargs or {})

    kinds = {
        "Plain": {}, "Disabled": disabled, "Own": {"__torch_function__": classmethod(function)},
        "Dispatched": {"__torch_dispatch__": classmethod(dispatch)},
    }  # fmt: skip
    for name, body in kinds.items():
        kind = type(name, (torch.Tensor,), body)
        given = a.as_subclass(kind)
        expect_near(framework.read(parbake.rmsnorm(given, w, target=TARGET).as_subclass(torch.Tensor)), norm(x, weight), "f16")
        out = torch.empty_like(a)
        parbake.rmsnorm(given, w, out=out, target=TARGET)
        expect_near(framework.read(out), norm(x, weight), "f16")
        assert ("parbake.rmsnorm.default" in seen) == (name == "Dispatched"), (name, seen)

    class Weight(torch.nn.Parameter):
        pass

    with torch.no_grad():
        expect_near(framework.read(parbake.rmsnorm(a, Weight(w), target=TARGET)), norm(x, weight), "f16")


@check("tvm_ffi", "torch")
def recorded_by_make_fx():
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    _, _, (a, b, w) = tensors()
    for mode in ("real", "symbolic"):
        for function in FUNCTIONS:
            graph = make_fx(function, tracing_mode=mode)(a, w)
            assert "parbake" in graph.code, graph.code
            for got, expected in zip(graph(b, w), function(b, w)):
                assert torch.equal(got, expected), (mode, function.__name__)


@check("tvm_ffi", "torch")
def recorded_by_jit_trace():
    import warnings

    import torch

    _, _, (a, b, w) = tensors()
    for function in FUNCTIONS:
        with warnings.catch_warnings():
            # PyTorch's own, from 2.9: the tracer is deprecated.
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(function, (a, w))
        assert "parbake::" in str(traced.graph), traced.graph
        for got, expected in zip(traced(b, w), function(b, w)):
            assert torch.equal(got, expected), function.__name__


@check("tvm_ffi", "torch")
def modes_see_operators():
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    _, _, (a, b, w) = tensors()
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        parbake.rmsnorm(a, w, target=TARGET)
        parbake.rmsnorm(a, w, out=b, target=TARGET)
        parbake.fused_add_rmsnorm(a, b, w, target=TARGET)
        # Where the fast path begins: tensors that are where they have to be, or not.
        try:
            parbake.gemma_rmsnorm(a.cpu(), w.cpu())
        except ValueError as error:
            assert "device" in str(error), error
    expected = ["rmsnorm", "rmsnorm_out", "fused_add_rmsnorm", "gemma_rmsnorm"]
    assert [s for s in seen if s.startswith("parbake")] == [f"parbake.{name}.default" for name in expected], seen
    assert torch.equal(parbake.rmsnorm(a, w, target=TARGET), torch.ops.parbake.rmsnorm(a, w, 1e-6, TARGET))


@check("tvm_ffi", "torch")
def derivatives_are_refused_in_each_direction():
    import torch
    from torch.autograd import forward_ad

    framework, (x, _, _), (a, _, w) = tensors("f32")

    def refused(words, call):
        try:
            call()
        except ValueError as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError(f"no error with {words}")

    out = torch.zeros_like(a).requires_grad_()
    for target in ("host", None):
        refused(["out: expected", "requires_grad=True"], lambda: parbake.rmsnorm(a, w, out=out, target=target))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(a, torch.ones_like(a))
            refused(["input: expected", "tangent"], lambda: parbake.rmsnorm(dual, w, target=target))
            refused(["residual: expected", "tangent"], lambda: parbake.fused_add_rmsnorm(a, dual, w, target=target))
    assert not framework.read(out.detach()).any() and (framework.read(a) == x).all()
    with torch.no_grad():
        assert parbake.rmsnorm(a, w, out=out, target=TARGET) is out
    with forward_ad.dual_level():
        parbake.rmsnorm(a, w, target=TARGET)
