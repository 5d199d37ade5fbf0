"""The same numbers from every framework."""

import numpy
from harness import Jax, Numpy, Torch, check, expect_near, norm, random

import parbake

SHAPES = ((3, 128), (1, 1), (5, 1000), (2, 3, 64), (0, 64))


def all_functions(framework):
    for dtype in framework.dtypes:
        for seed, shape in enumerate(SHAPES):
            x, residual = random(shape, dtype, seed), random(shape, dtype, seed + 100)
            weight = random(shape[-1:], dtype, seed + 200)
            for name, bias in (("rmsnorm", 0.0), ("gemma_rmsnorm", 1.0)):
                given = framework.make(x, dtype)
                function = getattr(parbake, name)
                got = function(given, framework.make(weight, dtype), 1e-5, target=framework.target)
                assert type(got) is type(given) and got.dtype == given.dtype
                expect_near(framework.read(got), norm(x, weight, 1e-5, bias), dtype)
                assert (framework.read(given) == x).all()
            for name, bias in (("fused_add_rmsnorm", 0.0), ("gemma_fused_add_rmsnorm", 1.0)):
                a, b, w = (framework.make(v, dtype) for v in (x, residual, weight))
                got = getattr(parbake, name)(a, b, w, target=framework.target)
                if framework.name == "jax":
                    assert (framework.read(a) == x).all() and (framework.read(b) == residual).all()
                    a, b = got
                else:
                    assert got is None
                expect_near(framework.read(b), x + residual, dtype, "fused_add_rmsnorm")
                expect_near(framework.read(a), norm(x + residual, weight, 1e-6, bias), dtype, "fused_add_rmsnorm")


@check("tvm_ffi", "host")
def from_numpy():
    all_functions(Numpy())


@check("tvm_ffi", "torch")
def from_torch():
    all_functions(Torch())


@check("tvm_ffi", "jax", "jax_tvm_ffi")
def from_jax():
    all_functions(Jax())


def into_poison(framework):
    """Written is what was given, all of it and nothing around it."""
    for dtype in framework.dtypes:
        x, weight = random((4, 128), dtype, 1), random((128,), dtype, 2)
        around = framework.make(numpy.full((6, 256), numpy.nan), dtype)
        out = around[1:5, 64:192]
        got = parbake.rmsnorm(framework.make(x, dtype), framework.make(weight, dtype), out=out, target=framework.target)
        assert got is out
        expect_near(framework.read(out), norm(x, weight), dtype)
        whole = framework.read(around)
        assert numpy.isnan(whole).sum() == 6 * 256 - 4 * 128


@check("tvm_ffi", "host")
def numpy_outputs_are_written_whole():
    into_poison(Numpy())


@check("tvm_ffi", "torch")
def torch_outputs_are_written_whole():
    into_poison(Torch())


@check("tvm_ffi", "torch")
def views_are_taken_where_their_rows_are_dense():
    framework = Torch()
    for dtype in framework.dtypes:
        wide, weight = random((7, 512), dtype, 3), random((128,), dtype, 4)
        x = framework.make(wide, dtype)[::2, 3:131]
        got = parbake.rmsnorm(x, framework.make(weight, dtype), target=framework.target)
        expect_near(framework.read(got), norm(wide[::2, 3:131], weight), dtype)
        # In place, over itself.
        copy = framework.make(wide, dtype)
        view = copy[::2, 3:131]
        assert parbake.rmsnorm(view, framework.make(weight, dtype), out=view, target=framework.target) is view
        expect_near(framework.read(view), norm(wide[::2, 3:131], weight), dtype)
        assert (framework.read(copy)[1::2] == wide[1::2]).all()


@check("tvm_ffi", "torch")
def tensors_of_tvm_ffi_are_taken():
    import tvm_ffi

    framework = Torch()
    x, weight = random((2, 128), "f32", 5), random((128,), "f32", 6)
    out = framework.make(x * 0, "f32")
    given = [tvm_ffi.from_dlpack(t) for t in (framework.make(x, "f32"), framework.make(weight, "f32"), out)]
    assert parbake.rmsnorm(given[0], given[1], out=given[2], target=framework.target) is given[2]
    expect_near(framework.read(out), norm(x, weight), "f32")
