"""What differs between the tensors of PyTorch, NumPy and JAX. Nothing of a framework is imported before it is needed.

Functions that are written by hand (`api.py` of an op) arrange their arguments with these. PyTorch follows them in a graph.
"""

import sys

# How frameworks name element types.
NAMES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "bool": "bool",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
_TYPES = {ours: theirs for theirs, ours in NAMES.items()}
_OTHERS = {"half": "f16", "bool_": "bool"}


def isinstance_of(framework, kind, tensors):
    """Whether one of them is of a framework. One that nobody imported made none of them."""
    kind = getattr(sys.modules.get(framework), kind, None)
    return kind is not None and any(isinstance(t, kind) for t in tensors)


def is_tensor(x):
    """Whether it is a tensor of any framework, and no number."""
    return hasattr(x, "shape") and hasattr(x, "dtype")


def changes(x):
    """Whether its elements can be written to: those of JAX cannot, a function that works in place gives new arrays."""
    return hasattr(x, "new_empty") or not isinstance_of("jax", "Array", [x])


def dtype(x):
    """The element type of a tensor, as Parbake names it: "bf16". What Parbake does not have is named as it is."""
    return name(x.dtype)


def name(dtype):
    """The name of an element type that is given as a name or as one of a framework's."""
    text = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    text = text.rpartition(".")[2]
    return NAMES.get(text) or _OTHERS.get(text, text)


def element(like, dtype):
    """An element type as the framework of `like` has it. It is given by Parbake's name or by a framework's."""
    theirs = _TYPES.get(name(dtype))
    if theirs is None and not isinstance(dtype, str):
        # The library says that it does not have that one.
        return dtype
    if theirs is None:
        raise TypeError(f"expected an element type of {', '.join(_TYPES)}, got {dtype!r}")
    if hasattr(like, "new_empty"):
        import torch

        return getattr(torch, theirs)
    import numpy

    if theirs.startswith(("bfloat", "float8")):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, theirs))
    return numpy.dtype(theirs)


def empty(like, shape, dtype=None):
    """A tensor of the framework and on the device of `like`, with its element type if no other is named.

    It is dense, its elements may be anything. Arrays of JAX cannot be written to: those are zeros.
    """
    if hasattr(like, "new_empty"):
        return like.new_empty(shape) if dtype is None else like.new_empty(shape, dtype=element(like, dtype))
    # Classes of others derive from those of a framework.
    known = "numpy" if isinstance_of("numpy", "ndarray", [like]) else None
    known = "jax.numpy" if isinstance_of("jax", "Array", [like]) else known
    framework = sys.modules.get(known or type(like).__module__.partition(".")[0])
    allocate = getattr(framework, "empty", None)
    if allocate is None:
        raise TypeError(f"expected a tensor of a framework with `empty`, got {type(like).__name__}")
    return allocate(tuple(shape), dtype=like.dtype if dtype is None else element(like, dtype))


def full(like, shape, value, dtype=None):
    """As `empty`, with `value` everywhere."""
    if hasattr(like, "new_full"):
        return like.new_full(shape, value, dtype=like.dtype if dtype is None else element(like, dtype))
    if not changes(like):
        import jax.numpy

        return jax.numpy.full(shape, value, like.dtype if dtype is None else element(like, dtype))
    made = empty(like, shape, dtype)
    made[...] = value
    return made


def cast(x, dtype):
    """The elements in another type; the tensor itself if it has that type."""
    if hasattr(x, "new_empty"):
        return x.to(element(x, dtype))
    return x if name(x.dtype) == name(dtype) else x.astype(element(x, dtype))


def permute(x, axes):
    """A view with its dimensions in another order; of JAX, a new array."""
    return x.permute(axes) if hasattr(x, "permute") else x.transpose(axes)


def reshape(x, shape):
    """The same elements in another shape: a view where strides allow it, else a copy. What is written goes to `view`."""
    return x.reshape(shape)


def view(x, shape):
    """A view in another shape, or a ValueError: what is written to it is written to `x`."""
    try:
        if hasattr(x, "new_empty"):
            return x.view(shape)
        other = x.reshape(shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"expected a tensor that can be seen as {list(shape)}, got {list(x.shape)}: {error}") from None
    if changes(x) and 0 not in x.shape and not _shares(x, other):
        raise ValueError(f"expected a tensor whose strides let it be seen as {list(shape)}, got {list(x.shape)}")
    return other


def _shares(x, other):
    if not isinstance_of("numpy", "ndarray", [x]):
        return True
    import numpy

    return numpy.shares_memory(x, other)


def split(x, sizes, axis=-1):
    """Views of these sizes one after the other, which together are all of an axis."""
    axis %= len(x.shape)
    if sum(sizes) != x.shape[axis]:
        raise ValueError(f"expected {' + '.join(map(str, sizes))} elements along axis {axis}, got {x.shape[axis]}")
    parts, begin = [], 0
    for size in sizes:
        parts.append(x[(slice(None),) * axis + (slice(begin, begin + size),)])
        begin += size
    return tuple(parts)


def stack(tensors, axis=0):
    """Tensors of one shape as one, along a new axis: a copy."""
    first = tensors[0]
    if hasattr(first, "new_empty"):
        import torch

        return torch.stack(list(tensors), axis)
    if not changes(first):
        import jax.numpy

        return jax.numpy.stack(tensors, axis)
    import numpy

    return numpy.stack(tensors, axis)
