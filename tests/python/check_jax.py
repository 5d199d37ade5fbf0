"""JAX: under jit and vmap, and what does not exist there."""

import numpy
from harness import Jax, check, expect_near, norm, random

import parbake


def given(dtype="f32", rows=3, hidden=64):
    framework = Jax()
    values = random((rows, hidden), dtype, 1), random((rows, hidden), dtype, 2), random((hidden,), dtype, 3)
    return framework, values, [framework.make(v, dtype) for v in values]


@check("tvm_ffi", "jax", "jax_tvm_ffi")
def under_jit():
    import jax

    framework, (x, residual, weight), (a, b, w) = given()
    target = framework.target

    @jax.jit
    def layer(a, b, w):
        y, total = parbake.fused_add_rmsnorm(a, b, w, target=target)
        return parbake.gemma_rmsnorm(y, w, 1e-5, target=target) + a, total

    for _ in range(2):
        y, total = layer(a, b, w)
        expect_near(framework.read(total), x + residual, "f32", "fused_add_rmsnorm")
        inner = norm(x + residual, weight)
        assert abs(framework.read(y) - x - norm(inner, weight, 1e-5, 1.0)).max() < 1e-4
        # Inputs that are used again are not changed.
        assert (framework.read(a) == x).all() and (framework.read(b) == residual).all()


@check("tvm_ffi", "jax", "jax_tvm_ffi")
def donated_memory_is_used():
    import jax

    framework, (x, residual, weight), (a, b, w) = given()

    def step(a, b, w):
        return parbake.fused_add_rmsnorm(a, b, w, target=framework.target)

    y, total = jax.jit(step, donate_argnums=(0, 1))(a, b, w)
    expect_near(framework.read(y), norm(x + residual, weight), "f32", "fused_add_rmsnorm")
    expect_near(framework.read(total), x + residual, "f32", "fused_add_rmsnorm")


@check("tvm_ffi", "jax", "jax_tvm_ffi")
def under_vmap():
    import jax

    framework, _, _ = given()
    x, weight = random((4, 3, 64), "f32", 5), random((4, 64), "f32", 6)
    a, w = framework.make(x, "f32"), framework.make(weight, "f32")
    one = lambda a, w: parbake.rmsnorm(a, w, target=framework.target)  # noqa: E731
    both = jax.vmap(one)(a, w)
    for i in range(4):
        expect_near(framework.read(both)[i], norm(x[i], weight[i]), "f32")
    shared = jax.vmap(one, in_axes=(0, None))(a, w[0])
    expect_near(framework.read(shared), norm(x, weight[0]), "f32")


@check("tvm_ffi", "jax", "jax_tvm_ffi")
def what_does_not_exist_is_refused():
    import jax

    framework, _, (a, _, w) = given()
    target = framework.target

    def refused(kind, words, call):
        try:
            jax.block_until_ready(call())
        except Exception as error:
            assert isinstance(error, kind), repr(error)
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError("no error")

    refused(TypeError, ["rmsnorm", "out", "do not change"], lambda: parbake.rmsnorm(a, w, out=a, target=target))
    x = numpy.ones((3, 64), numpy.float32)
    refused(TypeError, ["out", "do not change"], lambda: parbake.rmsnorm(x, x[0].copy(), out=a, target=target))
    refused(TypeError, ["eps", "static"], lambda: jax.jit(lambda e: parbake.rmsnorm(a, w, e, target=target))(1e-6))
    listed = lambda: parbake.rmsnorm(a, [1.0], target=target)  # noqa: E731
    refused(TypeError, ["rmsnorm", "weight: expected an array", "got list"], listed)
    refused(TypeError, ["rmsnorm", "weight: expected an array", "None"], lambda: parbake.rmsnorm(a, None, target=target))
    refused(TypeError, ["rmsnorm", "target: expected", "got list"], lambda: parbake.rmsnorm(a, w, target=["host"]))
    refused(TypeError, ["rmsnorm", "eps: expected", "got str"], lambda: parbake.rmsnorm(a, w, "1", target=target))
    assert (parbake.rmsnorm(a, w, None, target=target) == parbake.rmsnorm(a, w, target=target)).all()
    # What XLA runs fails as XLA says it, with the words and the code of ours.
    refused(jax.errors.JaxRuntimeError, ["PB-2001", "weight: shape"], lambda: parbake.rmsnorm(a, w[:3], target=target))
    refused(jax.errors.JaxRuntimeError, ["PB-2001", "eps"], lambda: parbake.rmsnorm(a, w, -1.0, target=target))
    refused(jax.errors.JaxRuntimeError, ["PB-2001", "eps"], lambda: parbake.rmsnorm(a, w, 10**400, target=target))
    if target == "host":
        refused(jax.errors.JaxRuntimeError, ["PB-2001", 'target="host"'], lambda: parbake.rmsnorm(a, w))
    refused(Exception, ["differentiate"], lambda: jax.grad(lambda a: parbake.rmsnorm(a, w, target=target).sum())(a))
