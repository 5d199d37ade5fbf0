"""Attention as FlashInfer calls it, for tensors of PyTorch: wrappers that plan a batch and run it, and single requests.

All of them but the one of latents are one kernel, `parbake.batch_attention`, and its plan, `parbake.attention_plan`.
"""

from parbake._attention.blocks import BlockSparseAttentionWrapper
from parbake._attention.cascade import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper,
    BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
    MultiLevelCascadeAttentionWrapper,
)
from parbake._attention.decode import (
    BatchDecodeWithPagedKVCacheWrapper,
    CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
)
from parbake._attention.mla import BatchMLAPagedAttentionWrapper
from parbake._attention.paged import BatchPrefillWithPagedKVCacheWrapper
from parbake._attention.persistent import BatchAttention, BatchAttentionWithAttentionSinkWrapper
from parbake._attention.planned import attention_workspace_size
from parbake._attention.ragged import BatchPrefillWithRaggedKVCacheWrapper
from parbake._attention.single import (
    single_decode_with_kv_cache,
    single_prefill_with_kv_cache,
    single_prefill_with_kv_cache_return_lse,
)
from parbake._attention.variable import VariableBlockSparseAttentionWrapper
from parbake._ops import WRAPPERS

__all__ = [name for name, family in WRAPPERS.items() if family == "attention"]
