"""Outputs of several types and shapes, tensors that may be absent, choices, functions written by hand.

The ops are those of tests/python/fixture, whose module is rendered from op.toml like every other; what stands in for
their kernels is below.
"""

import ctypes
import importlib.util
import pathlib
import sys

import numpy
from check_errors import refused
from harness import Jax, Numpy, Torch, check, random

FILE = pathlib.Path(__file__).parent / "fixture/demo.py"


def load():
    spec = importlib.util.spec_from_file_location("parbake_demo", FILE)
    module = sys.modules["parbake_demo"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo = load()
CALLS = []


def array(tensor):
    """The memory of a tensor, as one of NumPy."""
    import ml_dtypes

    name = str(tensor.dtype)
    plain = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}.get(name)
    if plain is None:
        return numpy.from_dlpack(tensor)
    # NumPy reads the bits, if the tensor says that they are integers.
    return numpy.from_dlpack(Bits(tensor, numpy.dtype(plain).itemsize)).view(getattr(ml_dtypes, name))


class Bits:
    def __init__(self, tensor, size):
        self.tensor, self.size = tensor, size

    def __dlpack__(self, **_):
        capsule = self.tensor.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.memmove(pointer(capsule, b"dltensor") + 20, bytes((1, 8 * self.size, 1, 0)), 4)
        return capsule

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def writable(tensor):
    """NumPy takes what comes by DLPack for read-only."""
    seen = array(tensor)
    if seen.size == 0:
        return numpy.empty(seen.shape, seen.dtype)
    size = sum((n - 1) * abs(s) for n, s in zip(seen.shape, seen.strides)) + seen.itemsize
    memory = (ctypes.c_char * size).from_address(seen.ctypes.data)
    return numpy.ndarray(seen.shape, seen.dtype, memory, strides=seen.strides)


def glu(out, amax, x, bias, activation, limit=100.0, gated=True, target=None):
    CALLS.append(("glu", activation, limit, gated))
    x = array(x).astype(numpy.float64)
    a, b = numpy.split(x, 2, -1)
    a = numpy.clip(a if bias is None else a + array(bias).astype(numpy.float64), -limit, limit)
    y = (numpy.maximum(a, 0) if activation == 0 else -a) * (b if gated else 1)
    writable(out)[...] = y.reshape(out.shape)
    if amax is not None:
        writable(amax)[...] = abs(y).max(-1).reshape(amax.shape)


def pick(values, places, x, select, target=None):
    x = array(x)
    x = x if select is None else x[array(select)]
    writable(values)[...] = x[:, : values.shape[1]]
    writable(places)[...] = numpy.arange(values.shape[1])


def quantize(q, scale, count, x, step=1, target=None):
    writable(count)[...] += step
    writable(scale)[...] = 2.0
    out = writable(q)
    out[...] = (array(x).astype(numpy.float32) / 2).astype(out.dtype)


def append(keys, values, key, value, slot, target=None):
    if key.shape[0] != slot.shape[0]:
        raise ValueError("[PB-2001] op `demo_append`: slot: shape")
    writable(keys)[array(slot)] = array(key)
    if values is not None:
        writable(values)[array(slot)] = array(value)


class Module:
    """As the library for TVM FFI."""

    def __init__(self, library):
        self.library = library
        self.made = {}

    def get_function(self, name):
        if not name.startswith("demo_"):
            return self.library.get_function(name)
        if name not in self.made:
            import tvm_ffi

            self.made[name] = tvm_ffi.convert(lambda *given: globals()[name.removeprefix("demo_")](*given))
        return self.made[name]


def bind():
    from parbake import _load

    if not isinstance(_load._module, Module):
        _load._module = Module(_load.module())


def bind_jax():
    """What XLA hands over is lent: Python may keep it only if it says that it might."""
    import jax_tvm_ffi

    bind()
    register = jax_tvm_ffi.register_ffi_target
    if not hasattr(register, "lends"):

        def owned(name, *given, **named):
            return register(name, *given, **dict(named, pass_owned_tensor=True) if "demo_" in name else named)

        owned.lends = False
        jax_tvm_ffi.register_ffi_target = owned


def shape(tensor):
    return tuple(tensor.shape)


def expected_glu(x, activation, bias=0.0, limit=100.0):
    a, b = numpy.split(x, 2, -1)
    a = numpy.clip(a + bias, -limit, limit)
    return (numpy.maximum(a, 0) if activation == 0 else -a) * b


def outputs(framework):
    bind()
    from parbake import _arrays

    make, read, target = framework.make, framework.read, framework.target
    for dtype in framework.dtypes:
        for lead in ((3,), (2, 3), (0,)):
            values = random((*lead, 8), dtype, 1)
            x = make(values, dtype)
            y = demo.demo_silu(x, target=target)
            assert shape(y) == (*lead, 4) and _arrays.dtype(y) == dtype and type(y) is type(x)
            assert numpy.allclose(read(y), expected_glu(values, 0), rtol=1e-2, atol=1e-3)
            y, amax = demo.demo_glu(x, "gelu", target=target)
            assert amax is None and numpy.allclose(read(y), expected_glu(values, 1), rtol=1e-2, atol=1e-3)
            bias = random((4,), dtype, 2)
            y, amax = demo.demo_glu(x, 0, make(bias, dtype), limit=0.5, amax=True, target=target)
            want = expected_glu(values, 0, bias, 0.5)
            assert shape(amax) == lead and _arrays.dtype(amax) == "f32"
            assert numpy.allclose(read(y), want, rtol=1e-2, atol=1e-3)
            if lead != (0,):
                assert numpy.allclose(read(amax), abs(want).max(-1), rtol=1e-2, atol=1e-3)
            assert demo.demo_glu(x, "silu", amax=False, target=target)[1] is None
    x = make(random((5, 8), "f32", 3), "f32")
    values, places = demo.demo_top(x, 3, rows=5, target=target)
    assert shape(values) == shape(places) == (5, 3) and (read(places) == numpy.arange(3)).all()
    assert (read(values) == read(x)[:, :3]).all()
    select = make(numpy.array([1, 4]), "i32")
    values, places = demo.demo_pick(x, select, k=2, index="i64" if framework.wide else None, target=target)
    assert shape(values) == (2, 2) and _arrays.dtype(places) == ("i64" if framework.wide else "i32")
    assert (read(values) == read(x)[[1, 4], :2]).all()
    assert type(demo.demo_gelu(x, target=target)) is type(x) and CALLS[-1] == ("glu", 1, 100.0, False)


def in_place_and_outputs(framework):
    """One argument changes, two outputs are allocated."""
    bind()
    from parbake import _arrays

    make, read, target = framework.make, framework.read, framework.target
    values = numpy.arange(40).reshape(5, 8)
    count = make(numpy.array([3]), "i64")
    x = make(values, "f32")
    for calls, kind in enumerate(("e4m3", "e5m2")):
        got = demo.demo_quantize(count, x, step=2, q_dtype=None if kind == "e4m3" else kind, target=target)
        q, scale = got[:2]
        assert _arrays.dtype(q) == kind and shape(q) == (5, 8) and shape(scale) == (8, 3), (_arrays.dtype(q), shape(scale))
        assert abs(read(_arrays.cast(q, "f32")) - values / 2).max() <= 2 and (read(scale) == 2).all()
        if framework.name == "jax":
            assert len(got) == 3 and read(count)[0] == 3 + 2 * calls
            count = got[2]
        else:
            assert len(got) == 2
    assert read(count)[0] == 7


def by_hand(framework):
    bind()
    make, read, target = framework.make, framework.read, framework.target
    key, value = random((2, 2, 4), "f32", 7), random((2, 2, 4), "f32", 8)
    slot = make(numpy.array([5, 0]), "i32")
    k, v = make(key, "f32"), make(value, "f32")
    want = numpy.zeros((2, 6, 2, 4))
    want[:, [5, 0]] = [key, value]
    for layout, order in (("NHD", (0, 1, 2, 3)), ("HND", (0, 2, 1, 3))):
        cache = make(numpy.zeros((2, 6, 2, 4)).transpose(order), "f32")
        new = demo.demo_append(k, v, cache, slot, layout, target=target)
        assert (new is None) == (framework.name != "jax")
        assert (read(cache if new is None else new).transpose(order) == want).all(), layout
    cache = make(numpy.zeros((6, 2, 4)), "f32")
    assert (read(demo.demo_appended(k, cache, slot, target=target)) == want[0]).all()
    refused(ValueError, ["layout", "NHD or HND", "'x'"], lambda: demo.demo_append(k, v, cache, slot, "x", target=target))


def frameworks(kind):
    framework = kind()
    framework.wide = True
    if framework.name == "numpy":
        import ml_dtypes

        framework.dtypes = dict(framework.dtypes, bf16=ml_dtypes.bfloat16)
    elif framework.name == "jax":
        framework.wide = bool(framework.jax.config.jax_enable_x64)
    plain = framework.make

    def make(values, dtype):
        if dtype in framework.dtypes:
            return plain(values, dtype)
        names = {"i32": "int32", "i64": "int64"}
        made = numpy.array(values, names[dtype])
        if framework.name == "torch":
            return framework.torch.tensor(made).to(framework.device)
        return made if framework.name == "numpy" else framework.jax.numpy.asarray(made)

    framework.make = make
    return framework


@check("tvm_ffi", "ml_dtypes")
def from_numpy():
    framework = frameworks(Numpy)
    outputs(framework)
    in_place_and_outputs(framework)
    by_hand(framework)


@check("tvm_ffi", "ml_dtypes", "torch", "cpu")
def from_torch():
    framework = frameworks(Torch)
    outputs(framework)
    in_place_and_outputs(framework)
    by_hand(framework)


@check("tvm_ffi", "jax", "jax_tvm_ffi", "cpu")
def from_jax():
    framework = frameworks(Jax)
    bind_jax()
    outputs(framework)
    by_hand(framework)
    with framework.jax.enable_x64(True):
        in_place_and_outputs(framework)


@check("tvm_ffi", "jax", "jax_tvm_ffi", "cpu")
def under_jit_and_vmap():
    import jax

    framework = frameworks(Jax)
    bind_jax()
    values = random((3, 2, 8), "f32", 1)
    x = framework.make(values, "f32")
    layer = lambda x: demo.demo_glu(x, "silu", amax=True, target="host")  # noqa: E731
    for run in (jax.jit(layer), jax.vmap(layer), jax.jit(jax.vmap(layer))):
        y, amax = run(x)
        assert numpy.allclose(framework.read(y), expected_glu(values, 0), atol=1e-5)
        assert shape(amax) == (3, 2)
    slot = framework.make(numpy.array([1, 0]), "i32")
    key = framework.make(random((2, 2, 4), "f32", 7), "f32")
    grow = jax.jit(lambda k, c, s: demo.demo_appended(k, c, s, target="host"), donate_argnums=1)
    try:
        jax.block_until_ready(grow(key[:1], framework.make(numpy.zeros((6, 2, 4)), "f32"), slot))
    except jax.errors.JaxRuntimeError as error:
        assert "PB-2001" in str(error), error
    else:
        raise AssertionError("no error")
    got = grow(key, framework.make(numpy.zeros((6, 2, 4)), "f32"), slot)
    assert (framework.read(got)[:2] == framework.read(key)[::-1]).all()


def graph(backend, dynamic):
    import torch

    bind()
    torch._dynamo.reset()

    def outputs(x, bias):
        y, amax = demo.demo_glu(x * 1, "silu", bias, amax=True, target="host")
        z, none = demo.demo_glu(x, 1, limit=1, target="host")
        assert none is None
        return y, amax, z, demo.demo_silu(x, target="host")

    def into(x, out):
        y, amax = demo.demo_glu(x, "gelu", out=out, amax=True, target="host")
        return amax, demo.demo_silu(x, out=torch.empty_like(y), target="host")

    def picked(x, k):
        values, places = demo.demo_top(x, k, rows=x.shape[0], target="host")
        return values, places, *demo.demo_pick(x, k=2, rows=x.shape[0], index=torch.int64, target="host")

    def quantized(count, x):
        return demo.demo_quantize(count, x, q_dtype="e5m2", target="host")

    def written(k, v, cache, slot):
        demo.demo_append(k, v, cache, slot, "HND", target="host")
        return demo.demo_appended(k, torch.zeros(6, 2, 4), slot, target="host")

    functions = outputs, into, picked, quantized, written
    compiled = [torch.compile(f, fullgraph=True, backend=backend, dynamic=dynamic) for f in functions]
    for rows in (3, 5):
        torch.manual_seed(rows)
        x, bias, k = torch.randn(rows, 8), torch.randn(4), torch.randn(rows, 2, 4)
        slot = torch.arange(rows, dtype=torch.int32)
        given = [
            lambda: (x, bias), lambda: (x, torch.empty(rows, 4)), lambda: (x, 3), lambda: (torch.zeros(1, dtype=torch.int64), x),
            lambda: (k, k * 2, torch.zeros(2, 2, 6, 4), slot),
        ]  # fmt: skip
        for function, other, make in zip(functions, compiled, given):
            first, second = make(), make()
            for a, b in zip((*function(*first), *first), (*other(*second), *second)):
                same = (a.float() == b.float()).all() if isinstance(a, torch.Tensor) else a == b
                assert same, (function.__name__, a, b)
                assert not isinstance(a, torch.Tensor) or a.dtype == b.dtype


@check("tvm_ffi", "torch", "cpu")
def followed_by_dynamo():
    graph("eager", None)


@check("tvm_ffi", "torch", "cpu")
def followed_by_aot_autograd_with_symbols():
    graph("aot_eager", True)


@check("tvm_ffi", "torch", "cpu")
def operators_pass_the_checks_of_pytorch():
    import torch

    from parbake._torch import define

    bind()
    define()
    x = torch.randn(3, 8)
    calls = {
        "demo_silu": (x, "host"),
        "demo_glu": (x, 0, None, 100.0, True, "host"),
        "demo_glu_out": (x, 1, torch.randn(4), 100.0, True, torch.empty(3, 4), torch.empty(3), "host"),
        "demo_pick": (x, None, 3, 3, "i64", "host"),
        "demo_quantize": (torch.zeros(1, dtype=torch.int64), x, 1, "e5m2", "host"),
        "demo_append": (torch.zeros(6, 2, 4), x.view(3, 2, 4), torch.arange(3, dtype=torch.int32), None, None, "host"),
    }
    for name, arguments in calls.items():
        outcome = torch.library.opcheck(getattr(torch.ops.parbake, name).default, arguments)
        assert set(outcome.values()) == {"SUCCESS"}, (name, outcome)


@check("tvm_ffi", "torch", "cpu")
def exported_and_faked():
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    bind()

    class Model(torch.nn.Module):
        def forward(self, x):
            return demo.demo_glu(x, "silu", amax=True, target="host")

    x = torch.randn(3, 8)
    program = torch.export.export(Model(), (x,))
    assert "parbake.demo_glu" in str(program.graph)
    assert all(torch.equal(a, b) for a, b in zip(program.module()(x), Model()(x)))
    with FakeTensorMode() as mode:
        q, scale = demo.demo_quantize(mode.from_tensor(torch.zeros(1, dtype=torch.int64)), mode.from_tensor(x), target="host")
        assert shape(q) == (3, 8) and q.dtype == torch.float8_e4m3fn and shape(scale) == (4, 3)


@check("tvm_ffi", "torch", "cpu")
def the_fast_path_allocates_as_the_others_do():
    """Bound as on a GPU, with tensors of the CPU: what stands in for the kernels takes them."""
    import torch

    bind()
    x, select = torch.randn(2, 3, 8), torch.tensor([1], dtype=torch.int32)
    demo.demo_silu(x, target="host")
    kept, demo._call = demo._call, None
    try:
        with torch.no_grad():
            for got, want in (
                (demo.demo_silu(x), expected_glu(x.numpy(), 0)),
                (demo.demo_glu(x, "gelu", amax=False)[0], expected_glu(x.numpy(), 1)),
                (demo.demo_glu(x, 1, torch.ones(4), amax=True)[0], expected_glu(x.numpy(), 1, 1.0)),
                (demo.demo_top(x[0], 2, rows=3)[0], x[0, :, :2]),
                (demo.demo_pick(x[0], select, k=2)[0], x[0, 1:2, :2]),
                (demo.demo_quantize(torch.zeros(1, dtype=torch.int64), x, q_dtype=torch.float8_e5m2)[0].float(), x / 2),
            ):
                assert shape(got) == shape(want) and numpy.allclose(got, want, atol=0.5)
            y, amax = demo.demo_glu(x, "silu", out=torch.empty(2, 3, 4), amax=torch.empty(2, 3))
            assert shape(y) == (2, 3, 4) and amax.dtype == torch.float32 and (amax >= 0).all()
    finally:
        demo._call = kept


@check("tvm_ffi", "torch", "cpu")
def mistakes_are_named():
    import torch

    bind()
    x, count = torch.randn(3, 8), torch.zeros(1, dtype=torch.int64)
    on = {"target": "host"}
    refused(ValueError, ["demo_glu", "activation", "silu or gelu", "'relu'"], lambda: demo.demo_glu(x, "relu", **on))
    refused(ValueError, ["activation", "got 7"], lambda: demo.demo_glu(x, 7, **on))
    refused(TypeError, ["activation", "float"], lambda: demo.demo_glu(x, 0.5, **on))
    refused(TypeError, ["demo_pick", "k: expected a whole number, got None", "values"], lambda: demo.demo_pick(x, rows=3, **on))
    refused(TypeError, ["k: expected a whole number", "str"], lambda: demo.demo_pick(x, k="2", rows=3, **on))
    refused(ValueError, ["input: expected [..., 2*hidden], got []"], lambda: demo.demo_silu(x[0, 0], **on))
    refused(TypeError, ["input: expected a tensor", "list"], lambda: demo.demo_silu([1.0], **on))
    refused(ValueError, ["q_dtype", "e4m3 or e5m2", "'f16'"], lambda: demo.demo_quantize(count, x, q_dtype="f16", **on))
    wrong = lambda: demo.demo_quantize(count, x, q=torch.empty(3, 8).to(torch.float8_e4m3fn), q_dtype="e5m2", **on)  # noqa: E731
    refused(ValueError, ["q: expected e5m2 [3, 8], got e4m3 [3, 8]"], wrong)
    wrong = lambda: demo.demo_pick(x, values=torch.empty(3, 2), k=3, rows=3, **on)  # noqa: E731
    refused(ValueError, ["values: expected f32 [3, 3], got f32 [3, 2]"], wrong)
    parameter = torch.nn.Parameter(torch.randn(4))
    refused(ValueError, ["bias", "requires_grad=True"], lambda: demo.demo_glu(x, 0, parameter, **on))


@check("ml_dtypes", "torch")
def element_types_have_one_name_everywhere():
    import ml_dtypes
    import torch

    from parbake import _arrays

    for theirs, ours in _arrays.NAMES.items():
        like = torch.empty(1, dtype=getattr(torch, theirs))
        assert _arrays.dtype(like) == ours and _arrays.element(like, ours) == like.dtype
        dtype = numpy.dtype(getattr(ml_dtypes, theirs, theirs))
        like = numpy.empty(1, dtype)
        assert _arrays.dtype(like) == ours and _arrays.element(like, ours) == dtype == _arrays.element(like, dtype)
        assert _arrays.name(dtype.type) == ours


@check("torch")
def views_are_views():
    import torch

    from parbake import _arrays

    for zeros in (numpy.zeros, torch.zeros):
        x = zeros((2, 3, 4))
        _arrays.view(_arrays.permute(x, (0, 1, 2)), (6, 4))[5, 3] = 7
        a, b = _arrays.split(x, (1, 3))
        assert x[1, 2, 3] == 7 and b[1, 2, 2] == 7 and shape(a) == (2, 3, 1)
        refused(ValueError, ["[6, 4]"], lambda: _arrays.view(_arrays.permute(x, (1, 0, 2)), (6, 4)))
        refused(ValueError, ["3 + 3", "got 4"], lambda: _arrays.split(x, (3, 3)))
        assert shape(_arrays.stack((a, a), 1)) == (2, 2, 3, 1) and (_arrays.full(x, (2,), 3, "i32") == 3).all()
