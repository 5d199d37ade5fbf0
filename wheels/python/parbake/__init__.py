"""Parbake: GPU kernels, compiled ahead or on the spot, callable with the tensors of PyTorch, JAX and NumPy.

Nothing heavy is imported and no library is loaded before the first call; the wrappers of attention and products, `comm` and `fused_moe` import PyTorch.
"""

from parbake._error import Error, NotCoveredError
from parbake._ops import FAMILIES, FUNCTIONS, VERSION as __version__, WRAPPERS as _WRAPPERS

_ASK = ("Coverage", "Explanation", "Prepared", "explain", "prepare", "set_log_level", "supports")

# Written by hand, for PyTorch.
_MODULES = ("comm", "fused_moe")

__all__ = ["Error", "NotCoveredError", *_ASK, *_MODULES, *_WRAPPERS, *FAMILIES, *FUNCTIONS]


def __getattr__(name):
    # Modules are found as their attributes are asked for, and kept: the next look-up does not come here.
    from importlib import import_module

    if name in FUNCTIONS:
        value = getattr(import_module(f"parbake.{FUNCTIONS[name][0]}"), name)
    elif name in FAMILIES or name in _MODULES:
        value = import_module(f"parbake.{name}")
    elif name in _ASK:
        value = getattr(import_module("parbake._ask"), name)
    elif name in _WRAPPERS:
        value = getattr(import_module(f"parbake._{_WRAPPERS[name]}"), name)
    else:
        raise AttributeError(f"module 'parbake' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return [*__all__, "__version__"]
