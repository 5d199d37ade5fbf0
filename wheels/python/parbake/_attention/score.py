"""What changes scores: a mask of the caller's, a soft cap, positions. The kernel has a variant for them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from parbake._attention.wrong import refuse
from parbake.attention import batch_attention

# The arguments that the variant takes.
_CODE = batch_attention.__code__
_TAKEN = _CODE.co_varnames[: _CODE.co_argcount]


def modifiers(
    where: str,
    qo_heads: int,
    device: torch.device,
    mask: tuple[torch.Tensor, torch.Tensor] | None,
    pos_encoding_mode: str,
    logits_soft_cap: float | None,
    rope_scale: float | None,
    rope_theta: float | None,
) -> dict[str, Any]:
    """Arguments of `batch_attention`; none where scores are plain."""
    found: dict[str, Any] = {}
    if mask is not None:
        found.update(masked_by(mask))
    if logits_soft_cap is not None and logits_soft_cap > 0:
        needs(where, "logits_soft_cap", "logits_soft_cap")
        found["logits_soft_cap"] = float(logits_soft_cap)
    if pos_encoding_mode == "ROPE_LLAMA":
        needs(where, "pos_encoding_mode", "rope_theta")
        found["rope_theta"] = 1e4 if rope_theta is None else float(rope_theta)
        found["rope_scale"] = 1.0 if rope_scale is None else float(rope_scale)
    elif pos_encoding_mode == "ALIBI":
        needs(where, "pos_encoding_mode", "alibi_slopes")
        found["alibi_slopes"] = alibi_slopes(qo_heads, device)
    elif pos_encoding_mode != "NONE":
        expected = '"NONE", "ROPE_LLAMA" or "ALIBI"'
        refuse(ValueError, where, "pos_encoding_mode", expected, repr(pos_encoding_mode))
    if found:
        found["score"] = "modified"
    return found


def masked_by(mask: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    """Arguments for a mask: its bits, and at which byte those of each request begin."""
    return {"mask": mask[0], "mask_indptr": mask[1], "score": "modified"}


def scored(where: str, changes: dict[str, Any], score: Any) -> dict[str, Any]:
    """Arguments with a caller's own score, which nothing but a rotary embedding may be beside."""
    beside = [name for name in changes if name not in ("score", "rope_theta", "rope_scale")]
    if beside:
        refuse(ValueError, where, "score", f"none beside {beside[0]}: the snippet may do that too", repr(score))
    return {**changes, "score": score}


def needs(where: str, argument: str, taken: str) -> None:
    """Refuses what no kernel has yet."""
    if taken not in _TAKEN:
        refuse(NotImplementedError, where, argument, "nothing: this version has no kernel for it", "a value")


@functools.cache
def alibi_slopes(heads: int, device: torch.device) -> torch.Tensor:
    """A geometric series for the largest power of two of heads, and for the others every second term of the next one."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes, dtype=torch.float32).to(device)
