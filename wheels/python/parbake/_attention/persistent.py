"""Batches of prefill and decode together. That is what every batch is to the kernel; the workflow is another."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.paged import BatchPrefillWithPagedKVCacheWrapper
from parbake._attention.planned import attention_workspace_size
from parbake._attention.wrong import integers, layout, refuse, refuse_given


class BatchAttention:
    """Attention of a batch of any requests. It has a workspace of its own.

    Takes the arguments of `flashinfer.BatchAttention`.

    Args:
        kv_layout: "NHD", pages are [page_size, kv_heads, head_dim], or "HND", [kv_heads, page_size, head_dim].
        device: Where it runs.
        target: "host" runs tensors in CPU memory on the CPU, for correctness; `device` is "cpu" then.
    """

    def __init__(self, kv_layout: str = "NHD", device: Any = "cuda", *, target: str | None = None) -> None:
        layout("BatchAttention", kv_layout)
        self._layout, self._target = kv_layout, target
        self._device = torch.device("cpu" if target is not None else device)
        self._inner: BatchPrefillWithPagedKVCacheWrapper | None = None
        self._room = 0

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int,
        page_size: int,
        causal: bool = False,
        sm_scale: float | None = None,
        logits_soft_cap: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
        use_profiler: bool = False,
        *,
        num_tokens: int | None = None,
    ) -> None:
        """Shares the work of a batch out, on the device.

        Args:
            qo_indptr: i32 [batch + 1], where the queries of each request begin.
            kv_indptr: i32 [batch + 1], where the pages of each request begin.
            kv_indices: i32, the pages of all requests.
            kv_len_arr: i32 [batch], keys of each request.
            use_profiler: Not supported.

        The others are those of `BatchPrefillWithPagedKVCacheWrapper.plan`, and so are the errors.
        """
        refuse_given("BatchAttention", use_profiler=use_profiler)
        if self._inner is None or head_dim_vo > self._room:
            size = attention_workspace_size(head_dim_vo, self._device, target=self._target)
            workspace = torch.empty(size, dtype=torch.uint8, device=self._device)
            self._inner = BatchPrefillWithPagedKVCacheWrapper(workspace, self._layout, target=self._target)
            self._inner._where = "BatchAttention"
            self._room = head_dim_vo
        batch = integers("BatchAttention", "qo_indptr", qo_indptr).shape[0] - 1
        kv_len = integers("BatchAttention", "kv_len_arr", kv_len_arr, batch)
        last = (kv_len - 1) % page_size + 1
        self._soft_cap = logits_soft_cap
        self._inner.plan(
            qo_indptr,
            kv_indptr,
            kv_indices,
            last,
            num_qo_heads,
            num_kv_heads,
            head_dim_qk,
            page_size,
            head_dim_vo,
            causal=causal,
            sm_scale=sm_scale,
            logits_soft_cap=logits_soft_cap,
            q_data_type=q_data_type,
            kv_data_type=kv_data_type,
            num_tokens=num_tokens,
        )

    def run(
        self,
        q: torch.Tensor,
        kv_cache: Any,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        logits_soft_cap: float | None = None,
        profiler_buffer: Any = None,
        kv_cache_sf: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention of the batch that was planned: one launch. Arguments as of `BatchPrefillWithPagedKVCacheWrapper.run`;
        `logits_soft_cap` is that of the plan, 0 or None.

        Returns:
            The outputs, and the logarithms of the sums of exponentials, to the base 2.
        """
        if self._inner is None:
            refuse(ValueError, "BatchAttention", "plan", "to be called before run", "no plan")
        refuse_given("BatchAttention", profiler_buffer=profiler_buffer, kv_cache_sf=kv_cache_sf)
        if logits_soft_cap and logits_soft_cap != self._soft_cap:
            refuse(ValueError, "BatchAttention", "logits_soft_cap", f"{self._soft_cap}, as the plan", logits_soft_cap)
        return self._inner.run(q, kv_cache, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse, return_lse=True)


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """`BatchPrefillWithPagedKVCacheWrapper` whose heads each have a sink: one more score, which leads to no value.

    Takes the arguments of `flashinfer.BatchAttentionWithAttentionSinkWrapper`. Those that are not of the other wrapper say
    what run insists on (`q_data_type`, `kv_data_type`, `head_dim_qk`, `head_dim_vo`, `window_left`); `plan` may say it too.
    """

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        q_data_type: Any = torch.bfloat16,
        kv_data_type: Any = torch.bfloat16,
        head_dim_qk: int = 128,
        head_dim_vo: int = 128,
        window_left: int = -1,
        *,
        target: str | None = None,
    ) -> None:
        super().__init__(
            float_workspace_buffer,
            kv_layout,
            use_cuda_graph,
            qo_indptr_buf,
            paged_kv_indptr_buf,
            paged_kv_indices_buf,
            paged_kv_last_page_len_buf,
            custom_mask_buf,
            mask_indptr_buf,
            backend,
            target=target,
        )
        if pos_encoding_mode != "NONE":
            refuse(NotImplementedError, self._where, "pos_encoding_mode", '"NONE"', repr(pos_encoding_mode))
        self._dims_of_sinks = (head_dim_qk, head_dim_vo)
        self._own = {"window_left": window_left, "q_data_type": q_data_type, "kv_data_type": kv_data_type}

    def plan(self, *given: Any, **options: Any) -> None:
        """As `BatchPrefillWithPagedKVCacheWrapper.plan`; the window and element types are those of the wrapper, unless
        they are named."""
        if options.get("window_left") == -1:
            del options["window_left"]
        super().plan(*given, **{**self._own, **{k: v for k, v in options.items() if v is not None}})
        dims = (self._qk_dim, self._v_shape[-1])
        if dims != self._dims_of_sinks:
            refuse(ValueError, self._where, "head_dim_qk", f"{self._dims_of_sinks}, as the wrapper", dims)

    begin_forward = plan

    def run(  # type: ignore[override]
        self,
        q: torch.Tensor,
        paged_kv_cache: Any,
        sinks: torch.Tensor | None = None,
        sm_scale: float | None = None,
        **options: Any,
    ) -> Any:
        """As `BatchPrefillWithPagedKVCacheWrapper.run`.

        Args:
            sinks: f32 [num_qo_heads].
            sm_scale: Of scores; None: that of the plan.
        """
        kept = self._scale
        if sm_scale is not None:
            self._scale = sm_scale
        try:
            return super().run(q, paged_kv_cache, sinks=sinks, **options)
        finally:
            self._scale = kept
