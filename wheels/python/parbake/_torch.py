"""The functions as operators of PyTorch, for `torch.compile`, `torch.export`, tracers, modes and tensor subclasses.

A function that returns outputs is two operators: `parbake::rmsnorm` gives new tensors, `parbake::rmsnorm_out` writes to
those that it is given. Other functions are one operator that says which arguments it changes. Outputs that may be absent
are arguments of the second one only.
"""

from importlib import import_module
from threading import Lock

import torch

from parbake._call import FUNCTIONS, filled, launch
from parbake._ops import FAMILIES

_LOCK = Lock()
_defined = False

# How the schema of an operator says an argument. An extent may be one of a graph's symbols.
_TYPES = {
    "float": "float",
    "int": "SymInt",
    "bool": "bool",
    "choice": "SymInt",
    "extent": "SymInt?",
    "element": "str?",
}


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
    outputs = [place for place, _ in function.outputs]
    places = range(len(function.parameters))
    # Outputs that are never allocated are arguments like any other that is written to.
    changed = [i for i in places if function.parameters[i][1].startswith(("inout", "out"))]
    inputs = [i for i in places if i not in outputs]
    _operator(function, function.name, inputs, [i for i in changed if i in inputs])
    if len(outputs) > function.hidden:
        _operator(function, f"{function.name}_out", [i for i in places if i not in function.open], changed)


def _operator(function, name, places, changed):
    """An operator that takes the arguments at `places`, and changes those at `changed`."""
    needed = [i for i, (place, _) in enumerate(function.outputs) if function.parameters[place][1] == "out"]
    returned = needed if not function.outputs or function.outputs[0][0] not in places else []

    def all_of(given):
        arguments = [None] * len(function.parameters)
        for place, value in zip(places, given):
            arguments[place] = value
        return arguments

    def answer(results):
        return tuple(results) if len(results) > 1 else results[0] if results else None

    def run(*given):
        # PyTorch leaves out a last argument that has its default.
        target = given[len(places)] if len(given) > len(places) else None
        # Not `call`: that would come back here for a tensor that stays what it is.
        result = launch(function, target, all_of(given))
        results = result if isinstance(result, tuple) else (result,)
        return answer([results[i] for i in returned])

    def fake(*given):
        return answer([filled(function, i, *all_of(given)) for i in returned])

    arguments = []
    for place in places:
        parameter, role, _ = function.parameters[place]
        alias = f"(a{place}!)" if place in changed else ""
        optional = "?" if role.endswith("?") else ""
        arguments.append(f"{_TYPES.get(role) or f'Tensor{alias}{optional}'} {parameter}")
    results = ["Tensor"] * len(returned)
    results = results[0] if len(results) == 1 else f"({', '.join(results)})"
    schema = f"({', '.join(arguments)}, str? target=None) -> {results}"
    names = [function.parameters[place][0] for place in changed]
    operator = torch.library.custom_op(f"parbake::{name}", run, mutates_args=names, schema=schema)
    operator.register_fake(fake)
