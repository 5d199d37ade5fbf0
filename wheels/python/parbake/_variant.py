"""Scores of one's own: the caller's source as the value of an axis that is open to it."""

import ctypes
import json
import sys

from parbake import _load


class Given:
    """A variant with the values of its parameters: what a call takes."""

    def __init__(self, variant, values):
        self.variant = variant
        self.values = values

    def __repr__(self):
        return f"{self.variant!r}.given({', '.join(self.values)})"


class ScoreVariant:
    """What becomes of the scores of attention before the softmax, and which keys a query sees, in CUDA C++.

    It is what `parbake.attention.batch_attention` takes as `score`, with `given` if it has parameters. It is compiled at
    the first call, and found in the store and in bundles like any other kernel: its text is part of what identifies it.

    Args:
        score: The body of a function that gives the score: `x` is the scaled one, `at` says where it is. Without it, x.
        sees: The body of a function that says whether the query sees the key. Without it, it does.
        params: Name and type of each parameter, at most 8: "f32" and "i32" are numbers, "f32*" and "i32*" dense tensors.
        name: What errors and profilers call it: lower-case letters, digits and "_".

    Example:
        >>> cap = ScoreVariant("return cap * tanhf(x / cap);", params={"cap": "f32"}, name="soft_cap")
        >>> cap.given(cap=30.0)
        ScoreVariant('soft_cap').given(cap)
    """

    op = "batch_attention"

    def __init__(self, score=None, sees=None, params=None, name="custom"):
        functions = {"score": score, "sees": sees}
        self.name = name
        self.params = dict(params or {})
        self.functions = {function: body for function, body in functions.items() if body is not None}
        self._number = None

    def given(self, **values):
        """This variant with a value for each parameter: a number, or a tensor on the device of the call."""
        return Given(self, values)

    def number(self):
        """The number that the library of this process has for it. Asking for it checks the variant.

        Raises:
            ValueError: A name, a type, a function or a text that the kernel cannot take.
        """
        if self._number is None:
            from parbake._ask import check

            library = _load.library()
            handle, error, number = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int32()
            check(library, library.parbake_default(ctypes.byref(handle), ctypes.byref(error)), error)
            text = json.dumps({"name": self.name, "params": self.params, "functions": self.functions})
            words = (self.op.encode(), text.encode())
            status = library.parbake_snippet(handle, *words, ctypes.byref(number), ctypes.byref(error))
            check(library, status, error)
            self._number = number.value
        return self._number

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r})"


def number(op, value):
    """The number of a variant of an op; None for whatever else."""
    variant = value.variant if isinstance(value, Given) else value
    if not isinstance(variant, ScoreVariant) or variant.op != op:
        return None
    # What a compiler keeps of a call would be a number that means nothing in another process.
    if "torch" in sys.modules and sys.modules["torch"].compiler.is_compiling():
        raise NotImplementedError(f"{variant!r} cannot be traced by torch.compile: call it outside of compiled functions")
    return variant.number()


def values(function, arguments):
    """Name and value of each parameter, one after the other, of the variant among some arguments; None if there is none."""
    for value in arguments:
        if isinstance(value, ScoreVariant):
            return []
        if isinstance(value, Given):
            _refuse_gradients(function, value)
            return [item for pair in value.values.items() for item in pair]
    return None


def refuse(function, arguments, where):
    """Says that a variant cannot be called by way of something."""
    if values(function, arguments) is not None:
        raise NotImplementedError(f"parbake.{function.name}: {where} takes no ScoreVariant; nothing was launched")


def _refuse_gradients(function, given):
    for name, value in given.values.items():
        if getattr(value, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
            raise ValueError(
                f"parbake.{function.name}: there are no gradients of this function; nothing was launched\n"
                f"  {name}: expected a tensor that needs no gradient, got requires_grad=True\n"
                "  help: call it under torch.inference_mode() or torch.no_grad(), or hand over tensor.detach()"
            )
