"""Wrong arguments: the right exception, with op, argument, what was expected and what came; and nothing written."""

import importlib.util
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


@check("tvm_ffi", "host")
def read_only_arrays_are_inputs_and_no_outputs():
    x, w = numpy.full((4, 64), 2.0, numpy.float32), numpy.ones(64, numpy.float32)
    expected = parbake.rmsnorm(x, w, target="host")
    fixed = numpy.frombuffer(x.tobytes(), numpy.float32).reshape(4, 64)
    weight = numpy.lib.stride_tricks.as_strided(w, writeable=False)
    assert not fixed.flags.writeable and not weight.flags.writeable
    got = parbake.rmsnorm(fixed, weight, target="host")
    assert numpy.array_equal(got, expected) and got.flags.writeable
    assert numpy.array_equal(parbake.rmsnorm(numpy.broadcast_to(x[0], (4, 64))[:1], weight, target="host"), expected[:1])
    assert not fixed.flags.writeable and (fixed == 2).all()
    words = ["nothing was launched", "expected memory that may be written, got a read-only"]
    refused(ValueError, ["rmsnorm", "out: ", *words], lambda: parbake.rmsnorm(x, w, out=fixed, target="host"), fixed)
    call = lambda: parbake.fused_add_rmsnorm(x, fixed, w, target="host")  # noqa: E731
    refused(ValueError, ["fused_add_rmsnorm", "residual: ", *words], call, x, fixed)


@check("tvm_ffi", "host")
def arrays_that_cannot_be_handed_over_are_named():
    x, w = numpy.ones((2, 64), numpy.float32), numpy.ones(64, numpy.float32)
    kinds = [">f4", object, str, "M8[s]", "f4,f4"]
    if importlib.util.find_spec("ml_dtypes"):
        import ml_dtypes

        kinds.append(ml_dtypes.float8_e3m4)
    for kind in kinds:
        other = numpy.zeros((2, 64), kind)
        words = ["rmsnorm", "nothing was launched", "expected a dense tensor", str(other.dtype)]
        refused(TypeError, ["input: ", *words], lambda: parbake.rmsnorm(other, w, target="host"))
        refused(TypeError, ["weight: ", *words], lambda: parbake.rmsnorm(x, other[0], target="host"))
        refused(TypeError, ["out: ", *words], lambda: parbake.rmsnorm(x, w, out=other, target="host"))
        other.flags.writeable = False
        refused(TypeError, ["input: ", *words], lambda: parbake.rmsnorm(other, w, target="host"))


@check("tvm_ffi", "torch")
def tensors_that_cannot_be_handed_over_are_named():
    import torch

    x, w = torch.ones(2, 64), torch.ones(64)
    for target in ("host", None):
        words = ["rmsnorm", "input: ", "nothing was launched"]
        refused(ValueError, [*words, "memory", "meta"], lambda: parbake.rmsnorm(x.to("meta"), w, target=target))
        refused(TypeError, [*words, "dense"], lambda: parbake.rmsnorm(x.to_sparse(), w, target=target))
        each = torch.vmap(lambda x: parbake.rmsnorm(x, w, target=target))
        refused(TypeError, [*words, "memory"], lambda: each(torch.ones(3, 2, 64)))


@check("tvm_ffi", "torch")
def numbers_of_any_size_and_none():
    import torch

    x, w = torch.full((2, 64), 2.0), torch.ones(64)
    for eps in (10**30, -(10**30), 10**400):
        words = ["PB-2001", "rmsnorm", "eps: value: expected 0 to 1, got"]
        refused(ValueError, words, lambda: parbake.rmsnorm(x, w, eps, target="host"))
        # The fast path: here the device does not fit either.
        refused(ValueError, words[:2], lambda: parbake.rmsnorm(x, w, eps))
    expected = parbake.rmsnorm(x, w, target="host")
    assert torch.equal(parbake.rmsnorm(x, w, None, target="host"), expected)
    compiled = torch.compile(lambda x, w: parbake.rmsnorm(x, w, None, target="host"), backend="eager")
    assert torch.equal(compiled(x, w), expected)


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
