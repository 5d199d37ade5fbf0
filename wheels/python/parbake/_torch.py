"""The functions as operators of PyTorch, for `torch.compile`, `torch.export`, tracers, modes and tensor subclasses.

A function that returns an output is two operators: `parbake::rmsnorm` gives a new tensor, `parbake::rmsnorm_out` writes
to one. A function that works in place is one operator that says which arguments it changes.
"""

from importlib import import_module
from threading import Lock

import torch

from parbake._call import FUNCTIONS, launch
from parbake._ops import FAMILIES

_LOCK = Lock()
_defined = False


def define():
    """Defines all of them, once."""
    global _defined
    if _defined:
        return
    with _LOCK:
        if _defined:
            return
        for family in FAMILIES:
            import_module(f"parbake.{family}")
        for function in FUNCTIONS.values():
            _define(function)
        _defined = True


def _define(function):
    places = range(len(function.parameters))
    if function.returns is None:
        _operator(function, function.name, places, function.inout)
        return
    _operator(function, f"{function.name}_out", places, (*function.inout, function.returns))
    inputs = [i for i in places if i != function.returns]
    _operator(function, function.name, inputs, function.inout)


def _operator(function, name, places, changed):
    """An operator that takes the arguments at `places`, and changes those at `changed`."""
    returned = function.returns is not None and function.returns not in places

    def run(*given):
        arguments = [None] * len(function.parameters)
        for place, value in zip(places, given):
            arguments[place] = value
        # PyTorch leaves out a last argument that has its default.
        target = given[len(places)] if len(given) > len(places) else None
        # Not `call`: that would come back here for a tensor that stays what it is.
        result = launch(function, target, arguments)
        return result if returned else None

    def fake(*given):
        return torch.empty_like(given[places.index(function.like)]) if returned else None

    arguments = []
    for place in places:
        parameter, role, _ = function.parameters[place]
        alias = f"(a{place}!)" if place in changed else ""
        arguments.append(f"float {parameter}" if role == "scalar" else f"Tensor{alias} {parameter}")
    schema = f"({', '.join(arguments)}, str? target=None) -> {'Tensor' if returned else '()'}"
    names = [function.parameters[place][0] for place in changed]
    operator = torch.library.custom_op(f"parbake::{name}", run, mutates_args=names, schema=schema)
    operator.register_fake(fake)
