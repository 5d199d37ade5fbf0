"""Products of segments of rows, each with one of several matrices."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.wrong import integers, refuse
from parbake._gemm.dense import matrices, result
from parbake._gemm.workspace import processors
from parbake.gemm import group_mm

_WHERE = "SegmentGEMMWrapper"


class SegmentGEMMWrapper:
    """Products of segments of rows, each with a matrix of its own or one that `weight_indices` names.

    Takes the arguments of `flashinfer.gemm.SegmentGEMMWrapper`. A product is one launch, and nothing waits for the device:
    with `seg_indptr` and i32 indices a call may be captured into a CUDA graph and replayed with other segments.

    Args:
        float_workspace_buffer: Accepted, without effect: nothing is kept between launches.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(self, float_workspace_buffer: Any = None, backend: str = "auto", *, target: str | None = None) -> None:
        self._target = target

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any = None) -> None:
        """Accepted, without effect."""

    def run(
        self,
        x: torch.Tensor,
        weights: torch.Tensor,
        batch_size: int,
        weight_column_major: bool,
        out: torch.Tensor | None = None,
        seg_lens: torch.Tensor | None = None,
        seg_indptr: torch.Tensor | None = None,
        weight_indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x[segment] · weights[its index].

        Args:
            x: The rows of all segments one after the other, f16 or bf16 [rows, inputs].
            weights: Matrices of the same type: [matrices, outputs, inputs] if they are column-major, else [matrices,
                inputs, outputs]. Any strides.
            batch_size: Segments.
            weight_column_major: Which of both.
            out: [rows, outputs], rows dense; those of no segment stay as they are. Allocated if it is not given.
            seg_lens: Rows of each segment, i32 or i64 [batch_size]. They are added up on the device.
            seg_indptr: Where the rows of each segment begin, i32 or i64 [batch_size + 1]. One of both is given.
            weight_indices: The matrix of each segment, i32 or i64 [batch_size], in any order and as often as you like;
                without it that of the same number. One that does not exist has no results.

        Returns:
            `out`.

        Raises:
            TypeError: An argument is no tensor, or of another element type.
            ValueError: A shape, stride, device or number does not fit.
        """
        matrices(_WHERE, 2, x=x)
        matrices(_WHERE, 3, weights=weights)
        if (seg_lens is None) == (seg_indptr is None):
            got = "neither" if seg_lens is None else "both"
            refuse(ValueError, _WHERE, "seg_indptr", "one of seg_indptr and seg_lens", got)
        if seg_indptr is None:
            lens = integers(_WHERE, "seg_lens", seg_lens, batch_size)
            seg_indptr = torch.nn.functional.pad(lens.cumsum(0, dtype=torch.int32), (1, 0))
        indptr = integers(_WHERE, "seg_indptr", seg_indptr, batch_size + 1).to(torch.int32).contiguous()
        if weight_indices is not None:
            weight_indices = integers(_WHERE, "weight_indices", weight_indices, batch_size).to(torch.int32).contiguous()
        b = weights if weight_column_major else weights.mT
        out = result(_WHERE, x, (x.shape[0], b.shape[1]), out, None)
        group_mm(
            out, x, b, indptr, weights=weight_indices, processors=processors(x.device), target=self._target
        )  # fmt: skip
        return out

    forward = run
