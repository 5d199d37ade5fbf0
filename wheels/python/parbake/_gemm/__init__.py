"""Products of matrices as FlashInfer calls them, for tensors of PyTorch.

All of them are two kernels, `parbake.bmm` and `parbake.group_mm`, with the room that products cut along k need.
"""

from parbake._gemm.dense import (
    bmm_bf16,
    bmm_fp8,
    fp8_blockscale_gemm_sm90,
    gemm_fp8_nt_blockscaled,
    gemm_fp8_nt_groupwise,
    mm,
    mm_bf16,
)
from parbake._gemm.grouped import (
    batch_deepgemm_fp8_nt_groupwise,
    group_deepgemm_fp8_nt_groupwise,
    group_gemm_fp8_nt_groupwise,
    grouped_mm_bf16,
    grouped_mm_fp8,
)
from parbake._gemm.segment import SegmentGEMMWrapper
from parbake._ops import WRAPPERS

__all__ = [name for name, family in WRAPPERS.items() if family == "gemm"]
