"""Mistakes in arguments that are found before the library sees them, or that it has no words for."""

from types import SimpleNamespace


def refuse(kind, function, place, expected, got, help=None):
    """Raises `kind`: an argument does not fit."""
    raise kind(
        f"parbake.{function.name}: an argument does not fit; nothing was launched\n"
        f"  {function.parameters[place][0]}: expected {expected}, got {got}" + (f"\n  help: {help}" if help else "")
    )


def refuse_allocation(function, place, arguments, error):
    """Says why an output cannot be allocated: the shape, the extent or the framework of an argument."""
    out = function.parameters[place][0]
    lines = []
    for i, (name, role, shape) in enumerate(function.parameters):
        value = arguments[i]
        if role == "extent" and value is not None and type(value) is not int:
            refuse(TypeError, function, i, "a whole number", type(value).__name__)
        if role.rstrip("?") not in ("in", "inout") or value is None and role.endswith("?"):
            continue
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            lines = [f"  {name}: expected a tensor of a framework with `empty`, got {type(value).__name__}"]
            break
        lines.append(f"  {name}: expected {shape}, got {list(value.shape)}")
    missing = [n for i, (n, role, _) in enumerate(function.parameters) if role == "extent" and arguments[i] is None]
    if isinstance(error, TypeError) and missing:
        lines = [f"  {missing[0]}: expected a whole number, got None: no input says this extent of `{out}`"]
    elif isinstance(error, TypeError) and hasattr(arguments[function.inputs[0]], "shape"):
        lines = [f"  {function.parameters[function.inputs[0]][0]}: {error}"]
    kind = TypeError if isinstance(error, (TypeError, AttributeError)) else ValueError
    visible = place < len(function.parameters) - function.hidden
    help = f"\n  help: hand over `{out}` to be written to" if visible else ""
    raise kind(f"parbake.{function.name}: nothing can be allocated; nothing was launched\n" + "\n".join(lines) + help) from error


def refuse_gradients(torch, function, arguments):
    """Kernels are for inference: where gradients are recorded, a result without them would be wrong in silence."""
    # Outputs that are no arguments are allocated without.
    places = [i for i in function.tensors if i is not None and i < len(arguments)]
    if torch.is_grad_enabled():
        for i in places:
            if getattr(arguments[i], "requires_grad", False):
                _refuse_gradient(function, i, "a tensor that needs no gradient", "requires_grad=True")
    forward = forward_mode(torch)
    if forward._current_level >= 0:
        for i in places:
            if isinstance(arguments[i], torch.Tensor) and forward.unpack_dual(arguments[i]).tangent is not None:
                _refuse_gradient(function, i, "a tensor without a tangent", "a dual tensor of forward-mode differentiation")


def forward_mode(torch):
    """Has `_current_level`, which is negative outside of forward-mode differentiation."""
    module = torch.autograd.forward_ad
    return module if hasattr(module, "_current_level") else SimpleNamespace(_current_level=-1)


def _refuse_gradient(function, place, expected, got):
    raise ValueError(
        f"parbake.{function.name}: there are no gradients of this function; nothing was launched\n"
        f"  {function.parameters[place][0]}: expected {expected}, got {got}\n"
        "  help: call it under torch.inference_mode() or torch.no_grad(), or hand over tensor.detach()"
    )
