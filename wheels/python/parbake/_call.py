"""Calls that are off the fast path: the first one, other frameworks than PyTorch, the host target, and mistakes."""

import sys
from threading import RLock

from parbake import _arrays, _load, _variant
from parbake._arrays import isinstance_of
from parbake._error import code
from parbake._handed import handed, refuse_tensors
from parbake._numbers import chosen, product, with_numbers
from parbake._refuse import forward_mode, refuse, refuse_allocation, refuse_gradients

# Generated modules take these from here.
__all__ = ["Function", "Unbound", "call", "chosen", "filled", "product", "traced", "unclear"]


class Unbound:
    """Stands for the tensor type of PyTorch until a call has seen one."""


class Function:
    """A public function, and how the op behind it is called. Generated modules hold one for each."""

    def __init__(self, public, traced, op, parameters, tensors, scalars, outputs=(), hidden=0):
        self.public = public
        self.traced = traced
        # One that is called by a function written by hand begins with `_`.
        self.name = public.__name__.lstrip("_")
        self.op = op
        # Name, role, and what there is to know of that role. The last `hidden` ones are outputs that are no arguments.
        self.parameters = parameters
        self.hidden = hidden
        self.tensors = tensors
        self.scalars = scalars
        self.outputs = outputs
        roles = [parameter[1] for parameter in parameters]
        self.inputs = tuple(i for i, role in enumerate(roles) if role in ("in", "inout", "in?", "inout?"))
        self.changed = tuple(i for i, role in enumerate(roles) if role.startswith(("inout", "out")))
        self.open = tuple(i for i, role in enumerate(roles) if role in ("extent", "element"))
        # torch.compile follows the other function instead: it cannot see into TVM FFI. The attribute is its own way of
        # saying so, and needs no PyTorch to be imported. Without it the compiled graph is cut here, nothing else.
        public._torchdynamo_inline = traced
        FUNCTIONS[self.name] = self


FUNCTIONS = {}

# Held while the functions of TVM FFI are looked up. A finaliser may call in the middle of that.
_BINDING = RLock()


def call(function, target, *arguments):
    """Calls `function` with its arguments in order, those without effect left out."""
    arguments = [*arguments, *[None] * function.hidden]
    tensors = [arguments[i] for i in function.tensors if i is not None]
    if isinstance_of("jax", "Array", tensors):
        from parbake import _jax

        _variant.refuse(function, arguments, "JAX")
        return _jax.call(function, target, arguments)
    if isinstance_of("torch", "Tensor", tensors):
        torch = sys.modules["torch"]
        if _followed(torch, tensors):
            _variant.refuse(function, arguments, "a mode or a tracer of PyTorch")
            return _as_operator(function, target, with_numbers(function, arguments))
        refuse_gradients(torch, function, arguments)
    return launch(function, target, arguments)


def launch(function, target, arguments):
    """Calls `function` on memory: what PyTorch makes of a call beside that has been seen to."""
    named = _variant.values(function, arguments)
    arguments = with_numbers(function, arguments)
    tensors = [arguments[i] for i in function.tensors if i is not None]
    native = _bound(function, isinstance_of("torch", "Tensor", tensors))
    for i in range(len(function.outputs)):
        _output(function, i, arguments)
    values = _native(function, target, arguments)
    if named:
        values += [None] * (target is None) + named
    try:
        native(*values)
    except Exception as error:
        if code(error) is None:
            refuse_tensors(function, arguments)
        raise
    results = tuple(arguments[place] for place, _ in function.outputs)
    return results if len(results) > 1 else results[0] if results else None


def _output(function, i, arguments):
    """Allocates an output that is not given. One that may be absent is, unless it is asked for with True."""
    place, made = function.outputs[i]
    given, optional = arguments[place], function.parameters[place][1] == "out?"
    if optional and given is False:
        arguments[place] = None
    elif given is True if optional else given is None:
        arguments[place] = filled(function, i, *arguments)
    elif given is not None and any(arguments[o] is not None for o in function.open):
        _agrees(function, place, given, made, arguments)


def _agrees(function, place, given, made, arguments):
    """Refuses an output that has not the extents and the element type that were asked for."""
    try:
        shape, dtype = made(*arguments)
        # Leading dimensions may be one or many.
        several = len(shape) != len(given.shape)
        shapes = [[product(s)] if several else list(s) for s in (shape, given.shape)]
        expected, got = f"{_arrays.name(dtype)} {shapes[0]}", f"{_arrays.dtype(given)} {shapes[1]}"
    except Exception:
        # The library says what is wrong.
        return
    if expected != got:
        refuse(ValueError, function, place, expected, got)


def filled(function, i, *arguments):
    """A new tensor for an output."""
    place, made = function.outputs[i]
    if len(arguments) < len(function.parameters):
        arguments = [*arguments, *[None] * function.hidden]
    like = None
    for input in function.inputs:
        if like is None:
            like = arguments[input]
    try:
        shape, dtype = made(*arguments)
        return _arrays.empty(like, shape, dtype)
    except (AttributeError, IndexError, TypeError, ZeroDivisionError, ValueError) as error:
        refuse_allocation(function, place, arguments, error)


def unclear(error, *scalars):
    """Whether `call` has a better word for why a fast path failed. Nothing was launched then."""
    return code(error) is None or any(type(value) is int and value.bit_length() > 63 for value in scalars)


def traced_call(function, target, *arguments):
    """What torch.compile follows instead of `call`."""
    return _as_operator(function, target, arguments)


call._torchdynamo_inline = traced_call


def _as_operator(function, target, arguments):
    named = {}
    for place in range(len(function.parameters) - function.hidden):
        named[function.parameters[place][0]] = arguments[place]
    return function.traced(**named, target=target)


def _followed(torch, tensors):
    """Whether PyTorch does more than compute: a mode or a tracer follows, or a tensor is of a mind of its own.

    All of them see operators only. A subclass without a dispatch of its own is memory like any tensor.
    """
    if torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
        return True
    plain = torch.Tensor.__torch_dispatch__
    return any(isinstance(t, torch.Tensor) and type(t).__torch_dispatch__ is not plain for t in tensors)


def _native(function, target, arguments):
    """What TVM FFI is handed."""
    values = [None if i is None else handed(function, i, arguments[i]) for i in function.tensors]
    values += [number if place is None else arguments[place] for _, place, number in function.scalars]
    if target is not None:
        values.append(target)
    return values


def _bound(function, torch):
    """The function of TVM FFI; puts all of the family, for `torch` too if so, where their fast paths look."""
    place = function.public.__globals__
    name = f"_native_{function.op}"
    if place[name] is not None and (not torch or place["_Tensor"] is not Unbound):
        return place[name]
    with _BINDING:
        module = _load.module()
        for op in {f.op for f in FUNCTIONS.values() if f.public.__globals__ is place}:
            if place[f"_native_{op}"] is None:
                place[f"_native_{op}"] = module.get_function(op)
        if torch and place["_Tensor"] is Unbound:
            torch = sys.modules["torch"]
            place["_grad"] = torch.is_grad_enabled
            place["_modes"] = torch._C._len_torch_dispatch_stack
            place["_tracing"] = torch._C._is_tracing
            place["_forward"] = forward_mode(torch)
            place["_empty_like"] = torch.empty_like
            place["_types"] = _types(torch)
            # Last: from here on other threads take the fast path.
            place["_TENSORS"] = frozenset((torch.Tensor, torch.nn.Parameter))
            place["_Tensor"] = torch.Tensor
    return place[name]


def _types(torch):
    """Element types of PyTorch, by whatever they are called."""
    found = {}
    for theirs, ours in _arrays.NAMES.items():
        dtype = getattr(torch, theirs)
        found.update({theirs: dtype, ours: dtype, dtype: dtype})
    return found


def traced(function, *arguments):
    """The operators of PyTorch, for a compiler to follow."""
    import torch

    refuse_gradients(torch, function, arguments)
    define_operators()
    return torch.ops.parbake


def define_operators():
    """Defines them, once. torch.compile runs this while it follows a call, instead of compiling it."""
    from parbake import _torch

    _torch.define()
    return True


define_operators._dynamo_marked_constant = True
