"""Attention over keys that requests share, level by level: each level by itself, then merged."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.decode import BatchDecodeWithPagedKVCacheWrapper
from parbake._attention.paged import BatchPrefillWithPagedKVCacheWrapper
from parbake._attention.single import single_prefill_with_kv_cache
from parbake._attention.wrong import refuse
from parbake.cascade import merge_state_in_place


class MultiLevelCascadeAttentionWrapper:
    """Attention of queries over keys at several levels: those of the first are shared by most, those of the last by none.

    Takes the arguments of `flashinfer.MultiLevelCascadeAttentionWrapper`. A level is a batch of its own over the same
    queries, and its plan works as that of `BatchPrefillWithPagedKVCacheWrapper`.

    Args:
        num_levels: How many.
        float_workspace_buffer: As there; all levels use it, one after the other.
        kv_layout: "NHD" or "HND".
        use_cuda_graph: Launches may be captured: the buffers, one for each level, are given then.
        qo_indptr_buf_arr: i32 [requests of the level + 1] each.
        paged_kv_indptr_buf_arr: i32 [requests of the level + 1] each.
        paged_kv_indices_buf_arr: i32, as long as the most pages of the level.
        paged_kv_last_page_len_buf_arr: i32 [requests of the level] each.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self,
        num_levels: int,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf_arr: list[torch.Tensor] | None = None,
        paged_kv_indptr_buf_arr: list[torch.Tensor] | None = None,
        paged_kv_indices_buf_arr: list[torch.Tensor] | None = None,
        paged_kv_last_page_len_buf_arr: list[torch.Tensor] | None = None,
        *,
        target: str | None = None,
    ) -> None:
        where = type(self).__name__
        if num_levels < 1:
            refuse(ValueError, where, "num_levels", "at least 1", num_levels)
        arrays = {
            "qo_indptr_buf_arr": qo_indptr_buf_arr,
            "paged_kv_indptr_buf_arr": paged_kv_indptr_buf_arr,
            "paged_kv_indices_buf_arr": paged_kv_indices_buf_arr,
            "paged_kv_last_page_len_buf_arr": paged_kv_last_page_len_buf_arr,
        }
        buffers: list[Any] = [(None,) * num_levels] * 4
        if use_cuda_graph:
            for name, array in arrays.items():
                self._of_levels(num_levels, name, array)
            buffers = list(arrays.values())
        self._use_cuda_graph, self._target = use_cuda_graph, target
        self._levels = [
            BatchPrefillWithPagedKVCacheWrapper(
                float_workspace_buffer, kv_layout, use_cuda_graph, *level, target=target
            )
            for level in zip(*buffers)
        ]

    def _of_levels(self, count: int, name: str, array: Any) -> None:
        if not isinstance(array, (list, tuple)) or len(array) != count:
            got = f"{len(array)}" if isinstance(array, (list, tuple)) else type(array).__name__
            refuse(ValueError, type(self).__name__, name, f"{count} tensors, one for each level", got)

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """As it was given."""
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffers: Any = None) -> None:
        """Takes another buffer. The plans stay valid; the second argument is accepted and has no effect."""
        for level in self._levels:
            level.reset_workspace_buffer(float_workspace_buffer)

    def plan(
        self,
        qo_indptr_arr: list[torch.Tensor],
        paged_kv_indptr_arr: list[torch.Tensor],
        paged_kv_indices_arr: list[torch.Tensor],
        paged_kv_last_page_len: list[torch.Tensor],
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
        *,
        num_tokens: int | None = None,
    ) -> None:
        """Shares the work of all levels out.

        The first four arguments are lists with a tensor for each level, as `BatchPrefillWithPagedKVCacheWrapper.plan` takes
        them. `causal` is about the last level; queries see all keys of the others. `num_tokens` may say how many queries
        there are.
        """
        lists = {
            "qo_indptr_arr": qo_indptr_arr,
            "paged_kv_indptr_arr": paged_kv_indptr_arr,
            "paged_kv_indices_arr": paged_kv_indices_arr,
            "paged_kv_last_page_len": paged_kv_last_page_len,
        }
        for name, array in lists.items():
            self._of_levels(len(self._levels), name, array)
        for level, tensors in zip(self._levels, zip(*lists.values())):
            level.plan(
                *tensors,
                num_qo_heads,
                num_kv_heads,
                head_dim,
                page_size,
                causal=causal and level is self._levels[-1],
                pos_encoding_mode=pos_encoding_mode,
                sm_scale=sm_scale,
                window_left=window_left,
                logits_soft_cap=logits_soft_cap,
                rope_scale=rope_scale,
                rope_theta=rope_theta,
                q_data_type=q_data_type,
                kv_data_type=kv_data_type,
                num_tokens=num_tokens,
            )

    begin_forward = plan

    def run(self, q: torch.Tensor, paged_kv_cache: Any) -> torch.Tensor:
        """Attention over the keys of all levels: a launch for each, and one for each merge.

        Args:
            q: f16 or bf16 [queries, num_qo_heads, head_dim].
            paged_kv_cache: As `BatchPrefillWithPagedKVCacheWrapper.run` takes it; all levels have their pages in it.

        Returns:
            As q.
        """
        *others, last = self._levels
        if not others:
            return last.run(q, paged_kv_cache)
        o, lse = last.run(q, paged_kv_cache, return_lse=True)
        for level in others:
            merge_state_in_place(o, lse, *level.run(q, paged_kv_cache, return_lse=True), target=self._target)
        return o

    forward = run

    def end_forward(self) -> None:
        """Has no effect."""


class _SharedPrefix:
    """Requests that share a prefix, and have pages of their own behind it."""

    _unique: Any

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: Any = None) -> None:
        """Takes another buffer. The plan stays valid; the second argument is accepted and has no effect."""
        self._unique.reset_workspace_buffer(float_workspace_buffer)

    def end_forward(self) -> None:
        """Has no effect."""

    def _merged(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, own: Any, sm_scale: Any) -> torch.Tensor:
        o, lse = single_prefill_with_kv_cache(
            q, k, v, kv_layout=self._layout, sm_scale=sm_scale, return_lse=True, target=self._target
        )
        merge_state_in_place(o, lse, *own, target=self._target)
        return o

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str, target: str | None, kind: Any) -> None:
        self._layout, self._target = kv_layout, target
        self._unique = kind(float_workspace_buffer, kv_layout, target=target)


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """Decoding of a batch whose requests share a prefix.

    Takes the arguments of `flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper`.

    Args:
        float_workspace_buffer: As `BatchDecodeWithPagedKVCacheWrapper` takes it.
        kv_layout: "NHD" or "HND".
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD", *, target: str | None = None
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, target, BatchDecodeWithPagedKVCacheWrapper)

    def begin_forward(
        self,
        unique_kv_indptr: torch.Tensor,
        unique_kv_indices: torch.Tensor,
        unique_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        data_type: Any = None,
    ) -> None:
        """Shares the work of the pages behind the prefix out, as `BatchDecodeWithPagedKVCacheWrapper.plan` does."""
        self._unique.plan(
            unique_kv_indptr,
            unique_kv_indices,
            unique_kv_last_page_len,
            num_qo_heads,
            num_kv_heads,
            head_dim,
            page_size,
            data_type=data_type,
        )

    plan = begin_forward

    def forward(
        self,
        q: torch.Tensor,
        k_shared: torch.Tensor,
        v_shared: torch.Tensor,
        unique_kv_cache: Any,
    ) -> torch.Tensor:
        """Attention over the prefix and over each request's own pages.

        Args:
            q: f16 or bf16 [batch, num_qo_heads, head_dim].
            k_shared: [prefix, num_kv_heads, head_dim], or for layout HND [num_kv_heads, prefix, head_dim].
            v_shared: As k_shared.
            unique_kv_cache: As `BatchDecodeWithPagedKVCacheWrapper.run` takes it.

        Returns:
            As q.
        """
        return self._merged(q, k_shared, v_shared, self._unique.run(q, unique_kv_cache, return_lse=True), None)

    run = forward


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """Prefill and append of a batch whose requests share a prefix.

    Takes the arguments of `flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper`.

    Args:
        float_workspace_buffer: As `BatchPrefillWithPagedKVCacheWrapper` takes it.
        kv_layout: "NHD" or "HND".
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD", *, target: str | None = None
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, target, BatchPrefillWithPagedKVCacheWrapper)

    def begin_forward(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
    ) -> None:
        """Says what the batch is, as to `BatchPrefillWithPagedKVCacheWrapper.plan`. The plan is launched by `forward`."""
        self._batch = (
            qo_indptr,
            paged_kv_indptr,
            paged_kv_indices,
            paged_kv_last_page_len,
            num_qo_heads,
            num_kv_heads,
            head_dim,
            page_size,
        )
        self._told: Any = None

    plan = begin_forward

    def forward(
        self,
        q: torch.Tensor,
        k_shared: torch.Tensor,
        v_shared: torch.Tensor,
        unique_kv_cache: Any,
        causal: bool = False,
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> torch.Tensor:
        """Attention over the prefix, which all queries see, and over each request's own pages.

        Args:
            q: f16 or bf16 [queries, num_qo_heads, head_dim].
            k_shared: [prefix, num_kv_heads, head_dim], or for layout HND [num_kv_heads, prefix, head_dim].
            v_shared: As k_shared.
            unique_kv_cache: As `BatchPrefillWithPagedKVCacheWrapper.run` takes it.
            causal: About the pages behind the prefix.
            use_fp16_qk_reduction: Accepted, without effect.
            sm_scale: Of scores; None: 1 / sqrt(head_dim).
            rope_scale: Accepted, without effect: positions are not encoded here. Nor has rope_theta one.

        Returns:
            As q.
        """
        if self._told != (causal, sm_scale):
            self._unique.plan(*self._batch, causal=causal, sm_scale=sm_scale, num_tokens=q.shape[0])
            self._told = (causal, sm_scale)
        own = self._unique.run(q, unique_kv_cache, return_lse=True)
        return self._merged(q, k_shared, v_shared, own, sm_scale)

    run = forward
