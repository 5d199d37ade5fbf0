"""Mistakes in arguments, found before anything is launched."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from parbake._call import _types

# Element types by all their names.
TYPES: dict[Any, torch.dtype] = _types(torch)


def refuse(kind: type[Exception], where: str, argument: str, expected: str, got: Any, help: str = "") -> NoReturn:
    """Raises `kind`: an argument does not fit."""
    raise kind(
        f"parbake.{where}: an argument does not fit; nothing was launched\n  {argument}: expected {expected}, got {got}"
        + (f"\n  help: {help}" if help else "")
    )


def refuse_given(where: str, **arguments: Any) -> None:
    """What FlashInfer takes and nothing here does: given, it would be ignored in silence."""
    for argument, value in arguments.items():
        if value is not None and value is not False:
            expected = "nothing: there is no kernel for it"
            refuse(NotImplementedError, where, argument, expected, type(value).__name__)


def dtype(where: str, argument: str, value: Any) -> torch.dtype | None:
    """An element type by any of its names; None stays None."""
    if value is None:
        return None
    found = TYPES.get(value)
    if found is None:
        refuse(TypeError, where, argument, "an element type", repr(value))
    return found


def layout(where: str, value: Any) -> bool:
    """Whether heads come before tokens."""
    if value not in ("NHD", "HND"):
        refuse(ValueError, where, "kv_layout", '"NHD" or "HND"', repr(value))
    return value == "HND"


def number(where: str, argument: str, value: Any) -> float:
    """A scale: launches take numbers, so that none is read from the device."""
    if type(value) not in (int, float):
        refuse(TypeError, where, argument, "a number", type(value).__name__)
    return value


def integers(where: str, argument: str, value: Any, entries: int | None = None) -> torch.Tensor:
    """A tensor of integers in one dimension, of so many entries."""
    if not isinstance(value, torch.Tensor):
        refuse(TypeError, where, argument, "a tensor of int32", type(value).__name__)
    if value.dtype is not torch.int32 and value.dtype is not torch.int64:
        refuse(TypeError, where, argument, "int32", value.dtype)
    if value.dim() != 1 or entries is not None and value.shape[0] != entries:
        expected = "one dimension" if entries is None else f"[{entries}]"
        refuse(ValueError, where, argument, expected, list(value.shape))
    return value
