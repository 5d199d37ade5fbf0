"""Wrong arguments: the right exception, with op, argument, what was expected and what came; and nothing written."""

import inspect

import numpy
from harness import Numpy, Torch, check

import parbake
from parbake._error import code


def refused(kind, words, call, *untouched):
    """`call` raises exactly `kind` with all of `words`, and leaves tensors as they were."""
    before = [numpy.array(Torch().read(t) if hasattr(t, "device") and not isinstance(t, numpy.ndarray) else t)
              for t in untouched]
    try:
        call()
    except Exception as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        missing = [w for w in words if w not in str(error)]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__} with {words}")
    for old, tensor in zip(before, untouched):
        new = tensor if isinstance(tensor, numpy.ndarray) else Torch().read(tensor)
        assert numpy.array_equal(old, new, equal_nan=True), "an output was written"


def wrong_arguments(framework):
    make, target = framework.make, framework.target
    ones = numpy.ones((4, 128))
    x, w = make(ones, "f16"), make(ones[0], "f16")
    out = make(numpy.full((4, 128), numpy.nan), "f16")

    def call(*arguments, **named):
        return lambda: parbake.rmsnorm(*arguments, **{"out": out, "target": target, **named})

    double = x.astype(numpy.float64) if framework.name == "numpy" else x.double()
    refused(TypeError, ["PB-2001", "rmsnorm", "x: dtype: expected f16 or bf16 or f32, got f64"], call(double, w), out)
    refused(TypeError, ["weight: dtype", "f16", "f32"], call(x, make(ones[0], "f32")), out)
    refused(ValueError, ["rmsnorm", "weight: shape", "128", "got 64"], call(x, make(ones[0, :64], "f16")), out)
    refused(ValueError, ["x: shape", "rows = 4", "got 3"], call(x[:3], w), out)
    refused(ValueError, ["x: shape", "hidden from 1", "got 0"], lambda: parbake.rmsnorm(x[:, :0], w[:0], target=target))
    refused(ValueError, ["rank"], call(x, x), out)
    refused(ValueError, ["x: stride"], call(make(numpy.ones((128, 4)), "f16").T, w), out)
    for eps in (-1.0, float("nan"), float("inf"), 1.5):
        refused(ValueError, ["eps: value: expected 0 to 1"], call(x, w, eps), out)
    refused(TypeError, ["rmsnorm", "eps: type"], call(x, w, "small"), out)
    refused(TypeError, ["weight: type: expected a tensor"], call(x, "w"), out)
    refused(TypeError, ["input", "list"], lambda: parbake.rmsnorm([[1.0]], w, target=target))
    refused(ValueError, ["target: value: expected auto or host, got sm_90"], call(x, w, target="sm_90"), out)
    # Overlap other than the very same memory.
    wide = make(numpy.ones((5, 128)), "f16")
    refused(ValueError, ["out"], lambda: parbake.rmsnorm(wide[:4], w, out=wide[1:], target=target), wide)
    refused(
        ValueError, ["residual"], lambda: parbake.fused_add_rmsnorm(x, x, w, target=target), x
    )
    # Python's own: too few, too many, unknown.
    refused(TypeError, ["weight"], lambda: parbake.rmsnorm(x))
    refused(TypeError, ["positional"], lambda: parbake.rmsnorm(x, w, 1e-6, None, None, "host"))
    refused(TypeError, ["epsilon"], lambda: parbake.rmsnorm(x, w, epsilon=1e-6))
    # What fits is no error: no rows are no work, an ignored argument may be anything.
    assert parbake.rmsnorm(x[:0], w, enable_pdl=True, target=target).shape == (0, 128)


@check("tvm_ffi", "host")
def from_numpy():
    wrong_arguments(Numpy())
    x = numpy.ones((2, 64), numpy.float32)
    words = ["PB-2001", "rmsnorm", "x: device", 'target="host"', "got cpu"]
    refused(ValueError, words, lambda: parbake.rmsnorm(x, x[0].copy()))


@check("tvm_ffi", "torch")
def from_torch():
    wrong_arguments(Torch())


@check("tvm_ffi", "torch")
def tensors_are_where_the_target_is():
    import torch

    x, w = torch.ones(2, 64), torch.ones(64)
    refused(ValueError, ["x: device", 'target="host"', "got cpu"], lambda: parbake.rmsnorm(x, w))
    refused(ValueError, ["device"], lambda: parbake.fused_add_rmsnorm(x, x.clone(), w), x)


@check("tvm_ffi", "torch", "cuda")
def tensors_of_two_devices_are_refused():
    import torch

    x, w = torch.ones(2, 64, device="cuda"), torch.ones(64)
    refused(ValueError, ["weight: device", "cpu"], lambda: parbake.rmsnorm(x, w))
    refused(ValueError, ["x: device", "cuda"], lambda: parbake.rmsnorm(x, w.cuda(), target="host"))


@check("tvm_ffi", "host")
def codes_are_on_our_exceptions():
    assert issubclass(parbake.NotCoveredError, parbake.Error) and issubclass(parbake.Error, RuntimeError)
    assert parbake.Error("[PB-2103] x").code == "PB-2103" and parbake.Error("x").code is None
    try:
        parbake.rmsnorm(numpy.ones((2, 64)), numpy.ones(64), target="host")
    except TypeError as error:
        assert code(error) == "PB-2001"
    assert inspect.isclass(parbake.Error)


@check("tvm_ffi")
def what_nothing_covers_is_an_error_of_ours():
    """In a process of its own: settings are read once."""
    from check_threads import alone

    said = alone(
        "import numpy, parbake\n"
        "x = numpy.full((2, 64), 2.0, numpy.float32)\n"
        "out = numpy.full((2, 64), numpy.nan, numpy.float32)\n"
        "try: parbake.rmsnorm(x, x[0].copy(), out=out, target='host')\n"
        "except parbake.NotCoveredError as error: print(error.code, numpy.isnan(out).all(), 'rmsnorm' in str(error))\n",
        PARBAKE_JIT="off",
    )
    assert said == "PB-2002 True True", said


@check("tvm_ffi")
def a_broken_setting_is_told_at_the_first_call():
    from check_threads import alone

    said = alone(
        "import numpy, parbake\n"
        "x = numpy.ones((2, 64), numpy.float32)\n"
        "try: parbake.rmsnorm(x, x[0].copy(), target='host')\n"
        "except Exception as error: print(parbake._error.code(error), 'PARBAKE_JIT' in str(error))\n",
        PARBAKE_JIT="perhaps",
    )
    assert said == "PB-1001 True", said
