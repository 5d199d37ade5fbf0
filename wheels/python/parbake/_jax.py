"""The functions on arrays of JAX, as custom calls that run under `jax.jit`.

Arrays do not change: a function that works in place gives new arrays instead, and XLA lets them take the memory of the
old ones where nobody else needs those.
"""

from functools import lru_cache
from threading import Lock

import jax
import numpy

from parbake import _arrays, _load
from parbake._error import Error
from parbake._numbers import with_numbers
from parbake._refuse import refuse, refuse_allocation

_LOCK = Lock()
_registered = set()

# How an attribute of a custom call holds a number.
_NUMBERS = {float: numpy.float64, int: numpy.int64, bool: numpy.bool_}


def call(function, target, arguments):
    """Calls a function with its arguments in order."""
    arguments = list(arguments)
    for place, _ in function.outputs:
        given, optional = arguments[place], function.parameters[place][1] == "out?"
        if optional and isinstance(given, bool):
            arguments[place] = given or None
        elif given is not None and _arrays.is_tensor(given) and function.public.__name__.startswith("_"):
            # For functions that are written by hand it says what the new array is like.
            arguments[place] = jax.ShapeDtypeStruct(tuple(given.shape), given.dtype)
        elif given is not None:
            raise TypeError(
                f"parbake.{function.name}: arrays of JAX do not change; nothing was launched\n"
                f"  {function.parameters[place][0]}: expected None, got {type(given).__name__}\n"
                "  help: take the array that is returned"
            )
    if target is not None and not isinstance(target, str):
        _refuse(function, "target", "None, auto or host", target)
    allocated = [place for place, _ in function.outputs]
    for place in (i for i in function.tensors if i is not None and i not in allocated):
        given, optional = arguments[place], function.parameters[place][1].endswith("?")
        if not isinstance(given, (jax.Array, numpy.ndarray)) and not (optional and given is None):
            _refuse(function, function.parameters[place][0], "an array of JAX or NumPy", given)
    arguments = with_numbers(function, arguments)
    scalars = []
    for name, place, number in function.scalars:
        value = number if place is None else arguments[place]
        # TVM FFI takes what a whole number may not be, and the library says so.
        if type(value) not in _NUMBERS:
            raise TypeError(
                f"parbake.{function.name}: a number is part of what is compiled\n"
                f"  {name}: expected a number of Python, got {type(value).__name__}\n"
                "  help: let it be a static argument of `jax.jit`, or a constant"
            )
        scalars.append((name, type(value), value))
    for place in function.open:
        if function.parameters[place][1] == "extent" and not isinstance(arguments[place], (int, type(None))):
            refuse(TypeError, function, place, "a number of Python", type(arguments[place]).__name__)
    places = tuple(i for i in function.tensors if i is not None and i not in allocated and arguments[i] is not None)
    wanted = tuple(
        i for i, (place, _) in enumerate(function.outputs)
        if function.parameters[place][1] == "out" or arguments[place] is not None
    )
    facts = tuple((place, arguments[place]) for place in [*function.open, *allocated])
    run = _compiled(function, "auto" if target is None else target, places, wanted, facts, tuple(scalars))
    results = list(run(*(arguments[place] for place in places)))
    # What is absent has its place among those that are returned.
    returned = [results.pop(0) if i in wanted else None for i in range(len(function.outputs))]
    returned += [results.pop(0) if i in places else None for i in function.changed if i not in allocated]
    return tuple(returned) if len(returned) > 1 else returned[0]


def _refuse(function, name, expected, value):
    raise TypeError(
        f"parbake.{function.name}: an argument does not fit; nothing was launched\n"
        f"  {name}: expected {expected}, got {type(value).__name__}"
    )


@lru_cache(maxsize=1024)
def _compiled(function, target, places, wanted, facts, scalars):
    """A function of the arrays at `places`, which gives the outputs that are wanted and then what would be changed."""
    changed = [i for i in function.changed if i in places]
    results = [function.outputs[i][0] for i in wanted] + changed
    aliases = {places.index(i): results.index(i) for i in changed}
    # What the op is called with: a result, an array, or nothing. What is changed in place is both.
    order = []
    for place in function.tensors:
        if place in places:
            order.append(len(results) + places.index(place))
        else:
            order.append(results.index(place) if place in results else None)
    name = _register(function, tuple(order), len(results), len(places))
    attributes = {name: _NUMBERS[kind](value) for name, kind, value in scalars}

    def run(*tensors):
        arguments = [None] * len(function.parameters)
        for place, value in [*facts, *zip(places, tensors)]:
            arguments[place] = value
        shapes = []
        for i in wanted:
            place, made = function.outputs[i]
            if _arrays.is_tensor(arguments[place]):
                shapes.append(arguments[place])
                continue
            try:
                shape, dtype = made(*arguments)
                dtype = dtype if not isinstance(dtype, str) else _arrays.element(tensors[0], dtype)
            except (AttributeError, IndexError, TypeError, ZeroDivisionError, ValueError) as error:
                refuse_allocation(function, place, arguments, error)
            shapes.append(jax.ShapeDtypeStruct(tuple(shape), dtype))
        shapes += [jax.ShapeDtypeStruct(arguments[i].shape, arguments[i].dtype) for i in changed]
        # Under `vmap` one example after the other is computed: an op may give its first dimension another meaning.
        launch = jax.ffi.ffi_call(name, shapes, input_output_aliases=aliases, vmap_method="sequential")
        return tuple(launch(*tensors, **attributes, target=target))

    run.__name__ = function.name
    return jax.jit(run)


def _register(function, order, results, arrays):
    """Registers an op with XLA, once for each of its platforms and each way to call it. Gives the custom call's name.

    A custom call has its results, its arrays and its attributes in this order. If that is not the order of the op, as
    where a tensor is absent, a function of Python puts them in order, for each call.
    """
    tensors = len(order)
    # What is changed in place is an array and a result of the same memory: it is handed over once.
    if order == tuple(range(tensors)) and results + arrays == tensors:
        spec, adapter = (["rets"] if results else []) + ["args"], None
    elif order == tuple(range(results, results + arrays)):
        spec, adapter = ["args"], None
    else:
        spec, adapter = ["rets", "args"], order
    name = f"parbake.{function.op}"
    if spec != ["rets", "args"] or adapter is not None:
        name += "/" + ",".join("-" if i is None else str(i) for i in order)
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
        if adapter is not None:
            native = _adapted(native, adapter, results + arrays)
        spec = [*spec, *(f"attrs.{scalar[0]}" for scalar in function.scalars), "attrs.target"]
        for platform in ("cpu", "gpu"):
            jax_tvm_ffi.register_ffi_target(
                name, native, spec, platform=platform, allow_cuda_graph=True, pass_owned_tensor=adapter is not None
            )
        _registered.add(name)
    return name


def _adapted(native, order, count):
    import tvm_ffi

    def run(*given):
        native(*(None if i is None else given[i] for i in order), *given[count:])

    return tvm_ffi.convert(run)
