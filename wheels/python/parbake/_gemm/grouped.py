"""Products of rows in groups, each with a matrix of its own."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.wrong import integers, refuse
from parbake._gemm.dense import BLOCK, by_k, eight_bits, granularity, matrices, result
from parbake._gemm.workspace import processors
from parbake.gemm import group_mm


def grouped_mm_bf16(
    a: torch.Tensor,
    b: torch.Tensor,
    m_indptr: torch.Tensor,
    out: torch.Tensor | None = None,
    out_dtype: Any = torch.bfloat16,
    backend: str = "auto",
    *,
    target: str | None = None,
) -> torch.Tensor:
    """a[group] b[group]ᵀ in 16 bits, group by group. Takes the arguments of `flashinfer.grouped_mm.grouped_mm_bf16`.

    Args:
        a: The rows of all groups one after the other, bf16 [rows, k]; f16 too, with an `out_dtype` that goes with it.
        b: A matrix for each group, [groups, n, k], of the same type, any strides.
        m_indptr: Where the rows of each group begin, i32 [groups + 1]. Groups may be empty.
        out: [rows, n], rows dense; those of no group stay as they are. Allocated if it is not given.
        out_dtype: What it is allocated with: the type of a, or f32.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    where = "grouped_mm_bf16"
    _check(where, a, b, 2, m_indptr=m_indptr)
    out = result(where, a, (a.shape[0], b.shape[1]), out, out_dtype)
    group_mm(out, a, b, _i32(m_indptr), processors=processors(a.device), target=target)
    return out


def grouped_mm_fp8(
    a: torch.Tensor,
    b: torch.Tensor,
    m_indptr: torch.Tensor,
    alpha: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    out_dtype: Any = torch.bfloat16,
    backend: str = "auto",
    *,
    target: str | None = None,
) -> torch.Tensor:
    """alpha · a[group] b[group]ᵀ in 8 bits. Takes the arguments of `flashinfer.grouped_mm.grouped_mm_fp8`.

    Args:
        a: The rows of all groups one after the other, e4m3 [rows, k].
        b: A matrix for each group, e4m3 [groups, n, k].
        m_indptr: Where the rows of each group begin, i32 [groups + 1]. Groups may be empty.
        alpha: The product of both factors, an f32 tensor of one element.
        out: [rows, n], rows dense; those of no group stay as they are. Allocated if it is not given.
        out_dtype: What it is allocated with: bf16, f16 or f32.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    where = "grouped_mm_fp8"
    _check(where, a, b, 2, m_indptr=m_indptr)
    eight_bits(where, a=a, b=b)
    if alpha is not None:
        matrices(where, None, alpha=alpha)
        if alpha.numel() != 1:
            refuse(ValueError, where, "alpha", "one element", list(alpha.shape))
        alpha = alpha.reshape(1, 1, 1)
    out = result(where, a, (a.shape[0], b.shape[1]), out, out_dtype)
    group_mm(out, a, b, _i32(m_indptr), b_scale=alpha, processors=processors(a.device), target=target)
    return out


def group_gemm_fp8_nt_groupwise(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    m_indptr: torch.Tensor,
    scale_granularity_mnk: tuple[int, int, int] = (1, 128, 128),
    scale_major_mode: str = "MN",
    mma_sm: int = 1,
    out: torch.Tensor | None = None,
    out_dtype: Any = None,
    *,
    target: str | None = None,
) -> torch.Tensor:
    """a[group] b[group]ᵀ in 8 bits with factors for groups of elements.

    Takes the arguments of `flashinfer.gemm.group_gemm_fp8_nt_groupwise`.

    Args:
        a: The rows of all groups one after the other, e4m3 [rows, k].
        b: A matrix for each group, e4m3 [groups, n, k].
        a_scale: f32 [rows / gm, k / 128], rounded up, with the first number of the granularity as gm; with "MN" its
            transpose.
        b_scale: f32 [groups, n / 128, k / 128], rounded up; with "MN" its transpose, matrix by matrix.
        m_indptr: Where the rows of each group begin, i32 [groups + 1]: any numbers, none need be a multiple of another.
        scale_granularity_mnk: (1, 128, 128), or (128, 128, 128): blocks of 128 rows of a, wherever groups begin.
        scale_major_mode: "K" or "MN": how factors are laid out.
        mma_sm: Accepted, without effect.
        out: [rows, n], rows dense; those of no group stay as they are. Allocated if it is not given.
        out_dtype: What it is allocated with: bf16 (the default), f16 or f32.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    where = "group_gemm_fp8_nt_groupwise"
    _check(where, a, b, 2, m_indptr=m_indptr)
    scales = _scales(where, a, b, a_scale, b_scale, scale_granularity_mnk, scale_major_mode)
    out = result(where, a, (a.shape[0], b.shape[1]), out, out_dtype)
    group_mm(out, a, b, _i32(m_indptr), **scales, processors=processors(a.device), target=target)
    return out


def group_deepgemm_fp8_nt_groupwise(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    m_indices: torch.Tensor,
    scale_granularity_mnk: tuple[int, int, int] = (1, 128, 128),
    out: torch.Tensor | None = None,
    out_dtype: Any = None,
    *,
    target: str | None = None,
) -> torch.Tensor:
    """a[row] b[m_indices[row]]ᵀ in 8 bits with factors for groups of elements.

    Takes the arguments of `flashinfer.gemm.group_deepgemm_fp8_nt_groupwise`.

    Args:
        a: e4m3 [rows, k].
        b: A matrix for each group, e4m3 [groups, n, k].
        a_scale: f32 [rows, k / 128], rounded up.
        b_scale: f32 [groups, n / 128, k / 128], rounded up.
        m_indices: The group of each row, i32 [rows]; what is no group (-1, for one) has no result. Rows of one group are
            best neighbours; no group has to begin at a multiple of anything.
        scale_granularity_mnk: (1, 128, 128).
        out: [rows, n], rows dense; those of no group stay as they are. Allocated if it is not given.
        out_dtype: What it is allocated with: bf16 (the default), f16 or f32.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    where = "group_deepgemm_fp8_nt_groupwise"
    _check(where, a, b, 2, m_indices=m_indices)
    scales = _scales(where, a, b, a_scale, b_scale, scale_granularity_mnk, "K")
    out = result(where, a, (a.shape[0], b.shape[1]), out, out_dtype)
    group_mm(out, a, b, ids=_i32(m_indices), **scales, processors=processors(a.device), target=target)
    return out


def batch_deepgemm_fp8_nt_groupwise(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    scale_granularity_mnk: tuple[int, int, int] = (1, 128, 128),
    out: torch.Tensor | None = None,
    out_dtype: Any = None,
    *,
    target: str | None = None,
) -> torch.Tensor:
    """The first masked_m[group] rows of a[group] with b[group]ᵀ in 8 bits, with factors for groups of elements.

    Takes the arguments of `flashinfer.gemm.batch_deepgemm_fp8_nt_groupwise`.

    Args:
        a: e4m3 [groups, most, k], dense but for the last dimension's neighbours: groups lie `most` rows apart.
        b: e4m3 [groups, n, k].
        a_scale: f32 [groups, most, k / 128], rounded up.
        b_scale: f32 [groups, n / 128, k / 128], rounded up.
        masked_m: Rows of each group, i32 [groups], on the device. Nothing waits for it.
        expected_m: How many rows a group has about: tiles are chosen by it. Any number is right.
        scale_granularity_mnk: (1, 128, 128).
        out: [groups, most, n]; rows beyond stay as they are. Allocated if it is not given.
        out_dtype: What it is allocated with: bf16 (the default), f16 or f32.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `out`.
    """
    where = "batch_deepgemm_fp8_nt_groupwise"
    _check(where, a, b, 3, masked_m=masked_m)
    if a.shape[0] != b.shape[0]:
        refuse(ValueError, where, "b", f"{a.shape[0]} groups, as a has", b.shape[0])
    if type(expected_m) is not int:
        refuse(TypeError, where, "expected_m", "a whole number", type(expected_m).__name__)
    matrices(where, 3, a_scale=a_scale)
    out = result(where, a, (a.shape[0], a.shape[1], b.shape[1]), out, out_dtype)
    rows = _folded(where, a=a, a_scale=a_scale, out=out)
    scales = _scales(where, rows["a"], b, rows["a_scale"], b_scale, scale_granularity_mnk, "K")
    # By the mean of what there is room for, tiles would be as large as they get.
    tile = next((tile for tile in (16, 64) if expected_m <= tile), 128)
    group_mm(
        rows["out"], rows["a"], b, lengths=_i32(masked_m), **scales, tile_rows=tile, processors=processors(a.device),
        target=target,
    )  # fmt: skip
    return out


def _check(where: str, a: Any, b: Any, rank: int, **indices: Any) -> None:
    matrices(where, rank, a=a)
    matrices(where, 3, b=b)
    entries = {"m_indptr": b.shape[0] + 1, "m_indices": a.shape[0], "masked_m": b.shape[0]}
    for argument, value in indices.items():
        integers(where, argument, value, entries[argument])


def _i32(indices: torch.Tensor) -> torch.Tensor:
    return indices.to(torch.int32).contiguous()


def _scales(where, a, b, a_scale, b_scale, mnk, mode) -> dict[str, torch.Tensor]:
    eight_bits(where, a=a, b=b)
    matrices(where, 2, a_scale=a_scale)
    matrices(where, 3, b_scale=b_scale)
    rows, blocks = granularity(where, mnk), -(-b.shape[2] // BLOCK)
    return {
        "a_scale": by_k(where, "a_scale", a_scale, mode, (-(-a.shape[0] // rows), blocks)),
        "b_scale": by_k(where, "b_scale", b_scale, mode, (b.shape[0], -(-b.shape[1] // BLOCK), blocks)),
    }


def _folded(where: str, **named: torch.Tensor) -> dict[str, torch.Tensor]:
    """[groups, most, ..] as [groups * most, ..], without a copy."""
    rows = {}
    for argument, tensor in named.items():
        try:
            rows[argument] = tensor.view(tensor.shape[0] * tensor.shape[1], tensor.shape[2])
        except RuntimeError:
            refuse(ValueError, where, argument, "groups that lie as many rows apart as they have", tensor.stride())
    return rows
