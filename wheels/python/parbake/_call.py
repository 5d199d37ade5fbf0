"""Calls that are off the fast path: the first one, other frameworks than PyTorch, the host target, and mistakes."""

import sys
from threading import RLock
from types import SimpleNamespace

from parbake import _load
from parbake._error import code


class Unbound:
    """Stands for the tensor type of PyTorch until a call has seen one."""


class Function:
    """A public function, and how the op behind it is called. Generated modules hold one for each."""

    def __init__(self, public, traced, op, parameters, tensors, scalars, returns, like):
        self.public = public
        self.traced = traced
        self.name = public.__name__
        self.op = op
        self.parameters = parameters
        self.tensors = tensors
        self.scalars = scalars
        self.returns = returns
        self.like = like
        self.inputs = tuple(i for i, p in enumerate(parameters) if p[1] in ("in", "inout"))
        self.inout = tuple(i for i, p in enumerate(parameters) if p[1] == "inout")
        # torch.compile follows the other function instead: it cannot see into TVM FFI. The attribute is its own way of
        # saying so, and needs no PyTorch to be imported. Without it the compiled graph is cut here, nothing else.
        public._torchdynamo_inline = traced
        FUNCTIONS[self.name] = self


FUNCTIONS = {}

# Held while the functions of TVM FFI are looked up. A finaliser may call in the middle of that.
_BINDING = RLock()


def call(function, target, *arguments):
    """Calls `function` with its arguments in order, those without effect left out."""
    tensors = [arguments[i] for i in function.tensors]
    if isinstance_of("jax", "Array", tensors):
        from parbake import _jax

        return _jax.call(function, target, arguments)
    if isinstance_of("torch", "Tensor", tensors):
        torch = sys.modules["torch"]
        if _followed(torch, tensors):
            return _as_operator(function, target, _with_numbers(function, arguments))
        _refuse_gradients(torch, function, arguments)
    return launch(function, target, arguments)


def launch(function, target, arguments):
    """Calls `function` on memory: what PyTorch makes of a call beside that has been seen to."""
    arguments = _with_numbers(function, arguments)
    native = _bound(function, isinstance_of("torch", "Tensor", [arguments[i] for i in function.tensors]))
    result = None if function.returns is None else arguments[function.returns]
    if function.returns is not None and result is None:
        result = arguments[function.returns] = _empty_like(function, arguments[function.like])
    values = _native(function, target, arguments)
    try:
        native(*values)
    except Exception as error:
        if code(error) is None:
            _refuse_tensors(function, arguments)
        raise
    return result


def unclear(error, *scalars):
    """Whether `call` has a better word for why a fast path failed. Nothing was launched then."""
    return code(error) is None or any(type(value) is int and value.bit_length() > 63 for value in scalars)


def isinstance_of(framework, name, tensors):
    """Whether one of them is of a framework. One that nobody imported made none of them."""
    kind = getattr(sys.modules.get(framework), name, None)
    return kind is not None and any(isinstance(t, kind) for t in tensors)


def traced_call(function, target, *arguments):
    """What torch.compile follows instead of `call`."""
    return _as_operator(function, target, arguments)


call._torchdynamo_inline = traced_call


def _as_operator(function, target, arguments):
    named = {}
    for parameter, value in zip(function.parameters, arguments):
        named[parameter[0]] = value
    return function.traced(**named, target=target)


def _followed(torch, tensors):
    """Whether PyTorch does more than compute: a mode or a tracer follows, or a tensor is of a mind of its own.

    All of them see operators only. A subclass without a dispatch of its own is memory like any tensor.
    """
    if torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
        return True
    plain = torch.Tensor.__torch_dispatch__
    return any(isinstance(t, torch.Tensor) and type(t).__torch_dispatch__ is not plain for t in tensors)


def _with_numbers(function, arguments):
    """The arguments with each number as a float: None is its default, and Python's integers may have any size."""
    arguments = list(arguments)
    for i, (_, role, default) in enumerate(function.parameters):
        if role == "scalar" and arguments[i] is None:
            arguments[i] = default
        elif role == "scalar" and type(arguments[i]) is int:
            arguments[i] = as_float(arguments[i])
    return arguments


def as_float(value):
    """A number as a float; one that is too large for that is infinite, which no argument may be."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _native(function, target, arguments):
    """What TVM FFI is handed."""
    values = [_handed(function, i, arguments[i]) for i in function.tensors]
    values += [number if place is None else arguments[place] for _, place, number in function.scalars]
    if target is not None:
        values.append(target)
    return values


class _Writable:
    """The memory of a read-only array of NumPy, for what only reads it: DLPack has no word for read-only."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = dict(array.__array_interface__, data=(array.__array_interface__["data"][0], False))


def _handed(function, place, value):
    if not isinstance_of("numpy", "ndarray", [value]) or value.flags.writeable:
        return value
    if function.parameters[place][1] != "in":
        _refuse(ValueError, function, place, "memory that may be written", "a read-only array of NumPy")
    if value.dtype.kind != "f":
        return value
    return sys.modules["numpy"].asarray(_Writable(value))


def _refuse(kind, function, place, expected, got, help=None):
    name = function.parameters[place][0]
    raise kind(
        f"parbake.{function.name}: an argument does not fit; nothing was launched\n"
        f"  {name}: expected {expected}, got {got}" + (f"\n  help: {help}" if help else "")
    )


def _refuse_tensors(function, arguments):
    """Names the tensor that TVM FFI could not be handed, if one is to blame."""
    from tvm_ffi import from_dlpack

    # Inputs first: an output may have been allocated after one of them.
    for i in sorted(function.tensors):
        value = arguments[i]
        if getattr(value, "is_meta", False) is True:
            _refuse(ValueError, function, i, "a tensor with memory", "one on the device meta")
        if not hasattr(value, "__dlpack__"):
            continue
        try:
            from_dlpack(_handed(function, i, value))
        except Exception as error:
            got = f"{type(value).__name__} of {getattr(value, 'dtype', 'no dtype')}"
            help = f"DLPack says: {str(error).partition(chr(10))[0]}"
            expected = "a dense tensor of numbers in native byte order, with memory of its own"
            _refuse(TypeError, function, i, expected, got, help)


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
            place["_forward"] = _forward_mode(torch)
            place["_empty_like"] = torch.empty_like
            # Last: from here on other threads take the fast path.
            place["_TENSORS"] = frozenset((torch.Tensor, torch.nn.Parameter))
            place["_Tensor"] = torch.Tensor
    return place[name]


def _forward_mode(torch):
    """Has `_current_level`, which is negative outside of forward-mode differentiation."""
    module = torch.autograd.forward_ad
    return module if hasattr(module, "_current_level") else SimpleNamespace(_current_level=-1)


def _empty_like(function, tensor):
    """An output like `tensor`, by the means of its own framework."""
    # Classes of others derive from those of a framework.
    known = [name for name, kind in (("torch", "Tensor"), ("numpy", "ndarray")) if isinstance_of(name, kind, [tensor])]
    framework = sys.modules.get(known[0] if known else type(tensor).__module__.partition(".")[0])
    allocate = getattr(framework, "empty_like", None)
    if allocate is None:
        argument, out = function.parameters[function.like][0], function.parameters[function.returns][0]
        raise TypeError(
            f"parbake.{function.name}: nothing can be allocated\n"
            f"  {argument}: expected a tensor of a framework with `empty_like`, got {type(tensor).__name__}\n"
            f"  help: hand over `{out}` to be written to"
        )
    if framework.__name__ == "torch":
        return allocate(tensor)
    # Dense, also for a view whose axes were swapped.
    return allocate(tensor, order="C")


def _refuse_gradients(torch, function, arguments):
    """Kernels are for inference: where gradients are recorded, a result without them would be wrong in silence."""
    if torch.is_grad_enabled():
        for i in function.tensors:
            if getattr(arguments[i], "requires_grad", False):
                _refuse_gradient(function, i, "a tensor that needs no gradient", "requires_grad=True")
    forward = _forward_mode(torch)
    if forward._current_level >= 0:
        for i in function.tensors:
            if isinstance(arguments[i], torch.Tensor) and forward.unpack_dual(arguments[i]).tangent is not None:
                _refuse_gradient(function, i, "a tensor without a tangent", "a dual tensor of forward-mode differentiation")


def _refuse_gradient(function, place, expected, got):
    raise ValueError(
        f"parbake.{function.name}: there are no gradients of this function; nothing was launched\n"
        f"  {function.parameters[place][0]}: expected {expected}, got {got}\n"
        "  help: call it under torch.inference_mode() or torch.no_grad(), or hand over tensor.detach()"
    )


def traced(function, *arguments):
    """The operators of PyTorch, for a compiler to follow."""
    import torch

    _refuse_gradients(torch, function, arguments)
    define_operators()
    return torch.ops.parbake


def define_operators():
    """Defines them, once. torch.compile runs this while it follows a call, instead of compiling it."""
    from parbake import _torch

    _torch.define()
    return True


define_operators._dynamo_marked_constant = True
