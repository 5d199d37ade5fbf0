"""Calls that are off the fast path: the first one, other frameworks than PyTorch, the host target, and mistakes."""

import sys

from parbake import _load


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


def call(function, target, *arguments):
    """Calls `function` with its arguments in order, those without effect left out."""
    tensors = [arguments[i] for i in function.tensors]
    if isinstance_of("jax", "Array", tensors):
        from parbake import _jax

        return _jax.call(function, target, arguments)
    if isinstance_of("torch", "Tensor", tensors):
        torch = sys.modules["torch"]
        if any(isinstance(t, torch.Tensor) and type(t) not in (torch.Tensor, torch.nn.Parameter) for t in tensors):
            # A subclass of its own mind (fake, distributed, quantised) decides what becomes of an operator.
            return _as_operator(function, target, arguments)
        _refuse_gradients(torch, function, arguments)
        native = _bound(function, torch)
    else:
        native = _bound(function, None)
    if function.returns is None or arguments[function.returns] is not None:
        native(*_native(function, target, arguments))
        return None if function.returns is None else arguments[function.returns]
    out = _empty_like(function, arguments[function.like])
    given = list(arguments)
    given[function.returns] = out
    native(*_native(function, target, given))
    return out


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


def _native(function, target, arguments):
    """What TVM FFI is handed."""
    values = [arguments[i] for i in function.tensors]
    values += [number if place is None else arguments[place] for _, place, number in function.scalars]
    if target is not None:
        values.append(target)
    return values


def _bound(function, torch):
    """The function of TVM FFI; puts all of the family where their fast paths look."""
    place = function.public.__globals__
    name = f"_{function.op}"
    if place[name] is None:
        module = _load.module()
        for op in {f.op for f in FUNCTIONS.values() if f.public.__globals__ is place}:
            place[f"_{op}"] = module.get_function(op)
    if torch is not None and place["_Tensor"] is Unbound:
        place["_grad"] = torch.is_grad_enabled
        place["_empty_like"] = torch.empty_like
        place["_TENSORS"] = frozenset((torch.Tensor, torch.nn.Parameter))
        # Last: from here on other threads take the fast path.
        place["_Tensor"] = torch.Tensor
    return place[name]


def _empty_like(function, tensor):
    """An output like `tensor`, by the means of its own framework."""
    framework = sys.modules.get(type(tensor).__module__.partition(".")[0])
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
    if not torch.is_grad_enabled():
        return
    for i in function.inputs:
        if getattr(arguments[i], "requires_grad", False):
            raise ValueError(
                f"parbake.{function.name}: there are no gradients of this function; nothing was launched\n"
                f"  {function.parameters[i][0]}: expected a tensor that needs no gradient, got requires_grad=True\n"
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
