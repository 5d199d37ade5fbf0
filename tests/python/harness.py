"""Checks and their needs, and tensors of each framework."""

import importlib.util
import json
import math
import pathlib
import time
import traceback

import numpy

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = []


class Setup:
    """What the command line said."""

    device = "cpu"


class Skip(Exception):
    """A check needs what is not there."""


def check(*needs):
    """Marks a check that needs modules, "host" (what compiles for the host target), "cpu" (the tensors are there), "cuda"
    or "two GPUs"."""

    def keep(body):
        CHECKS.append((f"{body.__module__.removeprefix('check_')} {body.__name__}", needs, body))
        return body

    return keep


def missing(need):
    """Why a need is not met; None if it is."""
    if need in ("cuda", "two GPUs"):
        if Setup.device != "cuda":
            return f"{need} (--device cuda)"
        import torch

        return None if torch.cuda.device_count() >= (2 if need == "two GPUs" else 1) else need
    if need == "cpu":
        return None if Setup.device == "cpu" else f"{need} (--device cpu)"
    if need == "host":
        import parbake

        served = parbake.supports("rmsnorm", dtype="f32", target="host")
        return None if served else "a C++ compiler, for the host target"
    return None if importlib.util.find_spec(need) else need


def run(only):
    passed = failed = skipped = 0
    for name, needs, body in CHECKS:
        if only not in name:
            continue
        began = time.perf_counter()
        try:
            # Without a GPU everything runs on the host target.
            where = ["host"] if "tvm_ffi" in needs and Setup.device == "cpu" and "host" not in needs else []
            lacks = [m for m in map(missing, [*needs, *where]) if m]
            if lacks:
                raise Skip(", ".join(lacks))
            body()
        except Skip as need:
            skipped += 1
            print(f"skipped: needs {need} ({name})", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            passed += 1
            print(f"ok {name} ({time.perf_counter() - began:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def manifest():
    """The definitions of all ops."""
    return [row["op"] for row in json.loads((CHECKOUT / "generated-manifest/ops.json").read_text())["ops"]]


# What rounds to p bits, with the smallest normal exponent e.
FORMS = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126)}


def ulp(value, dtype):
    """The distance of neighbouring values around `value`."""
    bits, smallest = FORMS[dtype]
    exponent = numpy.floor(numpy.log2(numpy.maximum(numpy.abs(value), 2.0**-200)))
    return 2.0 ** (numpy.maximum(exponent, smallest) - bits + 1)


def rounded(value, dtype):
    """To the nearest value of the type, ties to even."""
    step = ulp(value, dtype)
    return numpy.round(value / step) * step


def expect_near(got, reference, dtype, op="rmsnorm"):
    """Fails where an element is further from the reference than op.toml allows; NaN always is."""
    bound = next(o for o in manifest() if o["name"] == op)["tolerance"][dtype]
    reference = numpy.asarray(reference, numpy.float64)
    assert got.shape == reference.shape, (got.shape, reference.shape)
    nearest = rounded(reference, dtype)
    limit = bound["ulp"] * ulp(nearest, dtype) if "ulp" in bound else bound["abs"] + bound["rel"] * abs(reference)
    with numpy.errstate(invalid="ignore"):
        good = numpy.abs(got - nearest) <= limit
    assert good.all(), f"{(~good).sum()} of {good.size} elements are off, by up to {numpy.abs(got - nearest).max()}"


def norm(x, weight, eps=1e-6, bias=0.0):
    """The float64 reference of rmsnorm."""
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * (weight + bias)


def random(shape, dtype, seed):
    """Numbers that the type holds exactly, as float64."""
    size = math.prod(shape)
    return rounded(numpy.random.default_rng(seed).standard_normal(size).reshape(shape), dtype)


class Numpy:
    name = "numpy"
    dtypes = {"f16": numpy.float16, "f32": numpy.float32}
    target = "host"

    def make(self, values, dtype):
        return numpy.array(values, self.dtypes[dtype])

    def read(self, tensor):
        return numpy.asarray(tensor, numpy.float64)


class Torch:
    name = "torch"

    def __init__(self):
        import torch

        self.torch = torch
        self.dtypes = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
        self.device = Setup.device
        self.target = "host" if Setup.device == "cpu" else None

    def make(self, values, dtype):
        return self.torch.tensor(values, dtype=self.torch.float64).to(self.dtypes[dtype]).to(self.device)

    def read(self, tensor):
        return tensor.double().cpu().numpy()


class Jax:
    name = "jax"

    def __init__(self):
        import jax

        self.jax = jax
        self.dtypes = {"f16": jax.numpy.float16, "bf16": jax.numpy.bfloat16, "f32": jax.numpy.float32}
        self.target = "host" if Setup.device == "cpu" else None
        self.place = jax.devices("cpu" if Setup.device == "cpu" else "gpu")[0]

    def make(self, values, dtype):
        values = numpy.array(values, numpy.float32)
        return self.jax.device_put(values, self.place).astype(self.dtypes[dtype])

    def read(self, tensor):
        return numpy.asarray(tensor.astype(self.jax.numpy.float32), numpy.float64)
