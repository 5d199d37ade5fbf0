"""A function of each kind as it really is: several outputs, an absent tensor, a choice, one that is written by hand."""

import numpy
from harness import Jax, Numpy, Torch, check, random

import parbake
from parbake import _arrays


def functions(framework):
    make, read, target = framework.make, framework.read, framework.target
    values = random((2, 3, 64), "f16", 1)
    x = make(values, "f16")
    a, b = values[..., :32], values[..., 32:]
    silu = a / (1 + numpy.exp(-a)) * b
    for y in (parbake.silu_and_mul(x, target=target), parbake.act_and_mul(x, "silu", target=target)):
        assert tuple(y.shape) == (2, 3, 32) and _arrays.dtype(y) == "f16" and type(y) is type(x)
        assert abs(read(y) - silu).max() < 2e-3
    q, scale = parbake.fp8_quantize_per_token(x, target=target)
    assert _arrays.dtype(q) == "e4m3" and tuple(scale.shape) == (2, 3) and _arrays.dtype(scale) == "f32"
    back = read(_arrays.cast(q, "f32")) * read(scale)[..., None]
    assert abs(back - values).max() < 0.07 * abs(values).max()
    # Without the scale's tensor: None on its way through every framework.
    out = _arrays.empty(x, x.shape, "e4m3")
    weight = make(numpy.ones(64), "f16")
    new = parbake.rmsnorm_quant(out, x, weight, 0.5, target=target)
    assert (new is None) == (framework.name != "jax")
    got = read(_arrays.cast(out if new is None else new, "f32")) * 0.5
    want = values / numpy.sqrt((values**2).mean(-1, keepdims=True) + 1e-6)
    assert abs(got - want).max() < 0.07 * abs(want).max()


def cache(framework):
    make, read, target = framework.make, framework.read, framework.target
    whole = lambda v: _arrays.cast(make(numpy.array(v), "f32"), "i32")  # noqa: E731
    key, value = random((3, 2, 64), "f16", 3), random((3, 2, 64), "f16", 4)
    pages = make(numpy.zeros((2, 2, 2, 4, 64)), "f16")
    where = whole([0, 0, 0]), whole([0, 3, 5]), pages, whole([1, 0]), whole([0, 2]), whole([2])
    new = parbake.append_paged_kv_cache(make(key, "f16"), make(value, "f16"), *where, "HND", target=target)
    assert (new is None) == (framework.name != "jax")
    got = read(pages if new is None else new)
    want = numpy.zeros((2, 2, 2, 4, 64))
    for token, (page, row) in enumerate(((1, 0), (1, 3), (0, 1))):
        want[page, 0, :, row], want[page, 1, :, row] = key[token], value[token]
    assert (got == want).all()


@check("tvm_ffi", "ml_dtypes", "host")
def from_numpy():
    functions(Numpy())
    cache(Numpy())


@check("tvm_ffi", "torch")
def from_torch():
    functions(Torch())
    cache(Torch())


@check("tvm_ffi", "jax", "jax_tvm_ffi")
def from_jax():
    functions(Jax())
    cache(Jax())


@check("tvm_ffi", "torch")
def followed_by_dynamo():
    import torch

    framework = Torch()
    x, weight = (framework.make(random(s, "f16", 7), "f16") for s in ((3, 64), (64,)))
    target = framework.target

    def block(x, weight):
        y = parbake.silu_and_mul(x, target=target)
        out = torch.empty_like(x, dtype=torch.float8_e4m3fn)
        parbake.rmsnorm_quant(out, x, weight, 0.5, target=target)
        return y, out.float(), *(t.float() for t in parbake.fp8_quantize_per_token(x, target=target))

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    for a, b in zip(block(x, weight), compiled(x, weight)):
        assert torch.equal(a, b)
