"""Questions about kernels, and having them ready. Needs neither TVM FFI nor a framework."""

import ctypes
import json
from operator import index

from parbake import _arrays, _load
from parbake._error import Error, NotCoveredError
from parbake._ops import FUNCTIONS
from parbake._variant import number

# Of the C ABI's kinds; what is not among them is an error of its own.
_EXCEPTIONS = {1: TypeError, 2: ValueError, 3: NotImplementedError, 4: NotCoveredError}


class Answer:
    """The library's answer. Its fields are attributes; `document` has them as `dict`, as the command line prints them."""

    def __init__(self, document):
        self.document = document

    def __getattr__(self, name):
        # An answer that is being copied has no document yet.
        document = self.__dict__.get("document", {})
        if name not in document:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        return document[name]

    def __dir__(self):
        return ["document", *self.document]

    def __repr__(self):
        facts = {k: v for k, v in self.document.items() if v is None or isinstance(v, (str, int, float))}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in facts.items())})"


class Coverage(Answer):
    """Whether a kernel would be served. True if a bundle, the store or the compiler has it."""

    def __bool__(self):
        return self.support in ("bundle", "store", "jit")


class Explanation(Answer):
    """From where a kernel would be served, why not from elsewhere, and what its identities are made of."""


class Prepared(Answer):
    """What was loaded and compiled."""


def supports(op, *, target=None, **axes):
    """Whether and from where a kernel of `op` would be served. Nothing is compiled or loaded.

    Args:
        op: "rmsnorm", "norm/rmsnorm", or the function itself.
        target: "sm_90a", "host" and so on; without one, the first GPU of this machine.
        **axes: A value for each axis: dtype="bf16", or a dtype of PyTorch or NumPy. Tactics may be given too.

    Returns:
        Coverage: true if it is served; `support` is "bundle", "store", "jit", "not_covered" or "unsupported", `reason`
        says why it does not exist, and `searched` where it was looked for.

    Raises:
        ValueError: There is no such op, axis, value or target.
        parbake.Error: There is no GPU, and no target was given.

    Example:
        >>> bool(parbake.supports("rmsnorm", dtype="bf16", target="sm_75"))
        False
    """
    return Coverage(_ask("parbake_supports", _op(op), target, axes))


def explain(op, *, target=None, **axes):
    """From where a kernel would be served and why, step by step, and what its identities are made of.

    Arguments and exceptions are those of `supports`.

    Example:
        >>> parbake.explain("rmsnorm", dtype="f32", target="sm_90a").decision["runs_on"]
        'sm_90a'
    """
    return Explanation(_ask("parbake_explain", _op(op), target, axes))


def prepare(ops, *, target=None, **axes):
    """Has every kernel of some ops ready, so that no later call waits: before requests come, before a graph is captured.

    Kernels for the GPUs of this machine and for "host" are loaded into this process, compiled on several threads if
    need be. For another target they are put into the store.

    Args:
        ops: A name or a pattern: "rmsnorm", "norm/*", several with commas between.
        target: "sm_90a", "host" and so on; without one, all GPUs of this machine.
        **axes: As of `supports`; they hold for each of the ops.

    Returns:
        Prepared: what was done.

    Raises:
        ValueError: No op matches, or has such an axis or value.
        parbake.NotCoveredError: Some have no way to be served; all gaps are named, and nothing was done.
        parbake.Error: A compiler or the driver failed.

    Example:
        >>> parbake.prepare("norm/*", dtype="bf16")
    """
    return Prepared(_ask("parbake_prepare", _op(ops), target, axes))


def set_log_level(level):
    """Sets the level of the log of calls: 0 off, 1 names, 3 arguments, 5 statistics, 10 dumps. It holds for the process.

    Raises:
        TypeError: It is no integer.
        ValueError: There is no such level.

    Example:
        >>> parbake.set_log_level(0)
    """
    try:
        number = index(level)
    except TypeError:
        raise TypeError(f"set_log_level: expected 0, 1, 3, 5 or 10, got {type(level).__name__} {level!r}") from None
    # ctypes takes the lowest bits of a larger one.
    if abs(number) >= 2**31 or _load.library().parbake_set_log_level(ctypes.c_int(number)) != 0:
        raise ValueError(f"set_log_level: expected 0, 1, 3, 5 or 10, got {level!r}")


def _op(op):
    name = getattr(op, "__name__", op)
    if not isinstance(name, str):
        raise TypeError(f"expected the name of an op or its function, got {type(op).__name__}")
    # Functions named after those of another library are ops of another name.
    return FUNCTIONS[name][1] if name in FUNCTIONS else name


def _value(op, name, value):
    own = number(op.rpartition("/")[2], value)
    value = value if own is None else own
    text = str(value) if isinstance(value, int) else _arrays.name(value)
    if not text or any(c.isspace() or c == "=" for c in text):
        raise ValueError(f"{name}: expected a value of the axis, got {value!r}")
    return text


def _ask(function, op, target, axes):
    library = _load.library()
    handle, error, answer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(library, library.parbake_default(ctypes.byref(handle), ctypes.byref(error)), error)
    values = " ".join(f"{name}={_value(op, name, value)}" for name, value in axes.items())
    arguments = [None if text is None else str(text).encode() for text in (op, values, target)]
    status = getattr(library, function)(handle, *arguments, ctypes.byref(answer), ctypes.byref(error))
    check(library, status, error)
    try:
        return json.loads(ctypes.string_at(answer))
    finally:
        library.parbake_text_free(answer)


def check(library, status, error):
    """Raises what a function of the C ABI failed with."""
    if status == 0:
        return
    library.parbake_error_message.restype = ctypes.c_char_p
    try:
        message = library.parbake_error_message(error).decode()
    finally:
        library.parbake_error_free(error)
    raise _EXCEPTIONS.get(status, Error)(message)
