"""The functions on arrays of JAX, as custom calls that run under `jax.jit`.

Arrays do not change: a function that works in place gives new arrays instead, and XLA lets them take the memory of the
old ones where nobody else needs those.
"""

from functools import lru_cache
from threading import Lock

import jax
import numpy

from parbake import _load
from parbake._call import as_float
from parbake._error import Error

_LOCK = Lock()
_registered = set()


def call(function, target, arguments):
    """Calls a function with its arguments in order."""
    if function.returns is not None and arguments[function.returns] is not None:
        raise TypeError(
            f"parbake.{function.name}: arrays of JAX do not change; nothing was launched\n"
            f"  {function.parameters[function.returns][0]}: expected None, got {type(arguments[function.returns]).__name__}\n"
            "  help: take the array that is returned"
        )
    if target is not None and not isinstance(target, str):
        _refuse(function, "target", "None, auto or host", target)
    for i in function.tensors:
        if i != function.returns and not isinstance(arguments[i], (jax.Array, numpy.ndarray)):
            _refuse(function, function.parameters[i][0], "an array of JAX or NumPy", arguments[i])
    scalars = []
    for name, place, number in function.scalars:
        value = number if place is None else arguments[place]
        if value is None:
            value = function.parameters[place][2]
        if not isinstance(value, (int, float)):
            raise TypeError(
                f"parbake.{function.name}: a number is part of what is compiled\n"
                f"  {name}: expected a number of Python, got {type(value).__name__}\n"
                "  help: let it be a static argument of `jax.jit`, or a constant"
            )
        scalars.append(as_float(value))
    run = _compiled(function, "auto" if target is None else target, tuple(scalars))
    return run(*(arguments[i] for i in function.tensors if i != function.returns))


def _refuse(function, name, expected, value):
    raise TypeError(
        f"parbake.{function.name}: an argument does not fit; nothing was launched\n"
        f"  {name}: expected {expected}, got {type(value).__name__}"
    )


@lru_cache(maxsize=1024)
def _compiled(function, target, scalars):
    name = _register(function)
    attributes = {f[0]: numpy.float64(value) for f, value in zip(function.scalars, scalars)}
    # The inputs in the order of the op, and of which the outputs have the shape.
    inputs = [i for i in function.tensors if i != function.returns]
    shapes = [function.like] if function.returns is not None else list(function.inout)
    aliases = {} if function.returns is not None else {inputs.index(i): o for o, i in enumerate(function.inout)}

    def run(*tensors):
        results = [tensors[inputs.index(i)] for i in shapes]
        results = [jax.ShapeDtypeStruct(r.shape, r.dtype) for r in results]
        # Under `vmap` one example after the other is computed: an op may give its first dimension another meaning.
        launch = jax.ffi.ffi_call(name, results, input_output_aliases=aliases, vmap_method="sequential")
        given = launch(*tensors, **attributes, target=target)
        return given[0] if function.returns is not None else tuple(given)

    run.__name__ = function.name
    return jax.jit(run)


def _register(function):
    """Registers an op with XLA, once for each of its platforms. Gives the name of the custom call."""
    name = f"parbake.{function.op}"
    with _LOCK:
        if name in _registered:
            return name
        try:
            import jax_tvm_ffi
        except ImportError as error:
            raise Error(
                "calls from JAX go through jax-tvm-ffi, and it cannot be imported\n"
                f"  got: {error}\n  help: pip install 'parbake[jax]'"
            ) from error
        native = _load.module().get_function(function.op)
        # What is changed in place is an input and an output of the same memory: it is handed over once.
        results = ["rets"] if function.returns is not None else []
        order = [*results, "args", *(f"attrs.{scalar[0]}" for scalar in function.scalars), "attrs.target"]
        for platform in ("cpu", "gpu"):
            jax_tvm_ffi.register_ffi_target(name, native, order, platform=platform, allow_cuda_graph=True)
        _registered.add(name)
    return name
