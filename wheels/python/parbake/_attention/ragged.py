"""Prefill of a batch whose keys and values lie one request after the other."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.prefill import Prefill
from parbake._attention.wrong import refuse_given


class BatchPrefillWithRaggedKVCacheWrapper(Prefill):
    """Attention of the queries of each request over its keys and values, which are no pages: [tokens, kv_heads, dim].

    Takes the arguments of `flashinfer.BatchPrefillWithRaggedKVCacheWrapper`, and works as
    `BatchPrefillWithPagedKVCacheWrapper` does.

    Args:
        float_workspace_buffer: Dense, of any element type, on the device that runs: for pieces of requests.
            `parbake.attention_workspace_size` says how large it must be.
        kv_layout: "NHD", k is [tokens, kv_heads, head_dim], or "HND", [kv_heads, tokens, head_dim].
        use_cuda_graph: Launches may be captured: plans are copied to the buffers, the batch stays as large as they say,
            and all batches have at most as many queries as the first one.
        qo_indptr_buf: i32 [batch + 1], with `use_cuda_graph`.
        kv_indptr_buf: i32 [batch + 1], with `use_cuda_graph`.
        custom_mask_buf: u8, for packed masks, with `use_cuda_graph`.
        mask_indptr_buf: i32 [batch + 1], with it.
        backend: Accepted, without effect.
        jit_args: Not supported.
        jit_kwargs: Not supported.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        kv_indptr_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
        *,
        target: str | None = None,
    ) -> None:
        super().__init__(
            float_workspace_buffer,
            kv_layout,
            use_cuda_graph,
            qo_indptr_buf,
            kv_indptr_buf,
            None,
            None,
            custom_mask_buf,
            mask_indptr_buf,
            {"jit_args": jit_args, "jit_kwargs": jit_kwargs},
            target,
            "",
        )

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        prefix_len_ptr: Any = None,
        token_pos_in_items_ptr: Any = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        seq_lens: Any = None,
        seq_lens_q: Any = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        v_indptr: Any = None,
        o_indptr: Any = None,
        *,
        num_tokens: int | None = None,
    ) -> None:
        """Shares the work of a batch out, on the device.

        Args:
            qo_indptr: i32 [batch + 1], where the queries of each request begin.
            kv_indptr: i32 [batch + 1], where its keys begin.
            fixed_split_size: Tokens: a request is cut every so many, rounded up to 64.
            v_indptr: Not supported: values lie as keys do. Nor is o_indptr.

        The others are those of `BatchPrefillWithPagedKVCacheWrapper.plan`, and so are the errors.
        """
        if not (prefix_len_ptr is token_pos_in_items_ptr is max_item_len_ptr is v_indptr is o_indptr is None):
            refuse_given(
                self._where,
                prefix_len_ptr=prefix_len_ptr,
                token_pos_in_items_ptr=token_pos_in_items_ptr,
                max_item_len_ptr=max_item_len_ptr,
                v_indptr=v_indptr,
                o_indptr=o_indptr,
            )
        self._prefill(
            {"qo_indptr": qo_indptr, "kv_indptr": kv_indptr},
            num_tokens,
            (num_qo_heads, num_kv_heads),
            (head_dim_qk, head_dim_qk if head_dim_vo is None else head_dim_vo),
            1,
            custom_mask,
            packed_custom_mask,
            causal,
            pos_encoding_mode,
            sm_scale,
            window_left,
            logits_soft_cap,
            (rope_scale, rope_theta),
            (q_data_type, kv_data_type, o_data_type),
            fixed_split_size,
            disable_split_kv,
        )

    begin_forward = plan

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        o_scale: float | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        sinks: torch.Tensor | None = None,
        kv_cache_sf: Any = None,
        score: Any = None,
    ) -> Any:
        """Attention of the batch that was planned: one launch.

        Args:
            q: f16 or bf16 [queries, num_qo_heads, head_dim_qk], the last dimension dense.
            k: [keys, num_kv_heads, head_dim_qk], or for layout HND [num_kv_heads, keys, head_dim_qk]. Strides are free
                but for the last: views of packed QKV are taken as they are.
            v: As k, of head_dim_vo.
            o_scale: Not supported, nor is kv_cache_sf.

        The others are those of `BatchPrefillWithPagedKVCacheWrapper.run`, and so are results and errors.
        """
        scale = self._scale if q_scale is None and k_scale is None else self._scaled(q_scale, k_scale)
        if o_scale is not None or kv_cache_sf is not None:
            refuse_given(self._where, o_scale=o_scale, kv_cache_sf=kv_cache_sf)
        if self._hnd:
            k, v = k.transpose(0, 1), v.transpose(0, 1)
        return self._launch(q, k.unsqueeze(1), v.unsqueeze(1), out, lse, return_lse, scale, v_scale, sinks, score)

    def run_return_lse(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> Any:
        """`run` with `return_lse`."""
        return self.run(q, k, v, return_lse=True, **options)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        return_lse: bool = False,
    ) -> Any:
        """`run`, with what `plan` was told said again. Another mask or window is planned anew."""
        self._told(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v, return_lse=return_lse)

    def forward_return_lse(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any, **options: Any
    ) -> Any:
        """`forward` with the logarithms."""
        return self.forward(q, k, v, *given, return_lse=True, **options)
