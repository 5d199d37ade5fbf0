"""Prefill and append of a batch whose keys and values lie in pages."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.prefill import Prefill
from parbake._attention.wrong import refuse_given


class BatchPrefillWithPagedKVCacheWrapper(Prefill):
    """Attention of the queries of each request over its keys and values in pages.

    Takes the arguments of `flashinfer.BatchPrefillWithPagedKVCacheWrapper`. `plan` shares the work out on the device, and
    waits for nothing; `run` is one launch, and any number of them may follow a plan. Lengths on the device are never
    copied to the host: where `qo_indptr` lies there and `num_tokens` is not given, the first `run` launches the plan,
    because its q says how many queries there are.

    Args:
        float_workspace_buffer: Dense, of any element type, on the device that runs: for pieces of requests.
            `parbake.attention_workspace_size` says how large it must be. Wrappers of one stream may share it.
        kv_layout: "NHD", pages are [page_size, kv_heads, head_dim], or "HND", [kv_heads, page_size, head_dim].
        use_cuda_graph: Launches may be captured: plans are copied to the buffers, the batch stays as large as they say,
            and all batches have at most as many queries as `max_total_num_rows`, or else as the first one.
        qo_indptr_buf: i32 [batch + 1], with `use_cuda_graph`.
        paged_kv_indptr_buf: i32 [batch + 1], with `use_cuda_graph`.
        paged_kv_indices_buf: i32, as long as the most pages of a batch, with `use_cuda_graph`.
        paged_kv_last_page_len_buf: i32 [batch], with `use_cuda_graph`.
        custom_mask_buf: u8, for packed masks, with `use_cuda_graph`.
        mask_indptr_buf: i32 [batch + 1], with it.
        backend: Accepted, without effect.
        jit_args: Not supported.
        jit_kwargs: Not supported.
        max_total_num_rows: With `use_cuda_graph`, the most queries of a batch: as many rows as the captured q has.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
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
        jit_args: Any = None,
        jit_kwargs: Any = None,
        *,
        max_total_num_rows: int | None = None,
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
            {"jit_args": jit_args, "jit_kwargs": jit_kwargs},
            target,
            "paged_",
        )
        if use_cuda_graph:
            self._most = max_total_num_rows or 0

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
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
        o_data_type: Any = None,
        non_blocking: bool = True,
        prefix_len_ptr: Any = None,
        token_pos_in_items_ptr: Any = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None,
        seq_lens: Any = None,
        seq_lens_q: Any = None,
        block_tables: Any = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        *,
        num_tokens: int | None = None,
    ) -> None:
        """Shares the work of a batch out, on the device.

        Args:
            qo_indptr: i32 [batch + 1], where the queries of each request begin. On any device; on the host it is copied,
                and i64 becomes i32.
            paged_kv_indptr: i32 [batch + 1], where the pages of each request begin.
            paged_kv_indices: i32, the pages of all requests.
            paged_kv_last_page_len: i32 [batch], tokens of the last page of each request.
            num_qo_heads: A multiple of num_kv_heads.
            num_kv_heads: Heads of keys.
            head_dim_qk: 64, 128, 192 or 256.
            page_size: Tokens of a page, 1 to 1048576.
            head_dim_vo: As head_dim_qk, which None means; 128 for 192.
            custom_mask: bool, [queries, keys] of each request one after the other, flat: true where a query sees a key.
                `causal` has no effect then.
            packed_custom_mask: u8, its bits, the first one the lowest; those of a request begin at a byte of their own.
            causal: The last query of a request sees all keys, the one before all but the last, and so on.
            pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI".
            use_fp16_qk_reduction: Accepted, without effect: sums are f32.
            sm_scale: Of scores; None: 1 / sqrt(head_dim_qk).
            window_left: Keys before its own that a query sees; -1: all.
            logits_soft_cap: c: scores become c tanh(score / c). None or 0: they do not.
            rope_scale: For "ROPE_LLAMA"; None: 1.
            rope_theta: For "ROPE_LLAMA"; None: 10000.
            q_data_type: Element type of q, which run then insists on. None: f16 or bf16, as run is given it.
            kv_data_type: Element type of the cache, in the same way.
            o_data_type: That of q, or None.
            non_blocking: Accepted, without effect: nothing waits.
            prefix_len_ptr: Not supported, nor are token_pos_in_items_ptr, token_pos_in_items_len and max_item_len_ptr.
            seq_lens: Accepted, without effect, as are seq_lens_q, block_tables, max_token_per_sequence and
                max_sequence_kv: the first four arguments say it.
            fixed_split_size: Pages: a request is cut every so many (rounded up to 64 tokens), so that its result does not
                depend on the other requests while the workspace has room for all pieces.
            disable_split_kv: No request is cut.
            num_tokens: Queries of all requests, if they are known and qo_indptr is on the device: the plan is launched
                by this call then, else by the first run.

        Raises:
            TypeError: An argument is no tensor, or of another element type.
            ValueError: A shape, a device or a number does not fit.
            NotImplementedError: There is no kernel for it.
        """
        if prefix_len_ptr is not None or token_pos_in_items_ptr is not None or max_item_len_ptr is not None:
            refuse_given(
                self._where,
                prefix_len_ptr=prefix_len_ptr,
                token_pos_in_items_ptr=token_pos_in_items_ptr,
                max_item_len_ptr=max_item_len_ptr,
            )
        self._prefill(
            {
                "qo_indptr": qo_indptr,
                "paged_kv_indptr": paged_kv_indptr,
                "paged_kv_indices": paged_kv_indices,
                "paged_kv_last_page_len": paged_kv_last_page_len,
            },
            num_tokens,
            (num_qo_heads, num_kv_heads),
            (head_dim_qk, head_dim_qk if head_dim_vo is None else head_dim_vo),
            page_size,
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
        paged_kv_cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        *,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        window_left: int | None = None,
        sinks: torch.Tensor | None = None,
        kv_cache_sf: Any = None,
        skip_softmax_threshold_scale_factor: Any = None,
        use_fp16_softmax: Any = None,
        uses_spcompress: Any = None,
        score: Any = None,
    ) -> Any:
        """Attention of the batch that was planned: one launch.

        Args:
            q: f16 or bf16 [queries, num_qo_heads, head_dim_qk], the last dimension dense. Rows beyond those of the
                requests are neither read nor written.
            paged_kv_cache: (keys, values), each [pages, page_size, num_kv_heads, head_dim], or for layout HND [pages,
                num_kv_heads, page_size, head_dim]; or one tensor with both, [pages, 2, ...]. Strides are free but for the
                last.
            q_scale: A number that q is to be multiplied by.
            k_scale: One for keys.
            v_scale: One for values.
            out: [queries, num_qo_heads, head_dim_vo]; written to, and returned.
            lse: f32 [queries, num_qo_heads], written to if `return_lse`.
            return_lse: Returns the logarithms of the sums of exponentials too, to the base 2.
            enable_pdl: Accepted, without effect.
            window_left: That of the plan, or None.
            sinks: f32 [num_qo_heads]: for each head one more score, which leads to no value.
            kv_cache_sf: Not supported, nor are skip_softmax_threshold_scale_factor, use_fp16_softmax and uses_spcompress.
            score: A `ScoreVariant`, or what its `given` returns. None: scores are as the plan says.

        Returns:
            The outputs; with `return_lse`, them and the logarithms, which are -inf where no key is seen.

        Raises:
            TypeError: A tensor is of another element type.
            ValueError: A shape, stride, device or number does not fit. Nothing was written.
            NotImplementedError: The combination does not exist.
            parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        """
        scale = self._scale if q_scale is None and k_scale is None else self._scaled(q_scale, k_scale)
        if window_left is not None:
            self._window_stays(window_left)
        if kv_cache_sf is not None or skip_softmax_threshold_scale_factor is not None or use_fp16_softmax or uses_spcompress:
            refuse_given(
                self._where,
                kv_cache_sf=kv_cache_sf,
                skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
                use_fp16_softmax=use_fp16_softmax,
                uses_spcompress=uses_spcompress,
            )
        k, v = self._planes(paged_kv_cache)
        return self._launch(q, k, v, out, lse, return_lse, scale, v_scale, sinks, score)

    def run_return_lse(self, q: torch.Tensor, paged_kv_cache: Any, **options: Any) -> Any:
        """`run` with `return_lse`."""
        return self.run(q, paged_kv_cache, return_lse=True, **options)

    def forward(
        self,
        q: torch.Tensor,
        paged_kv_cache: Any,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: float | None = None,
        v_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        return_lse: bool = False,
    ) -> Any:
        """`run`, with what `plan` was told said again. Another mask or window is planned anew."""
        self._told(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    def forward_return_lse(self, q: torch.Tensor, paged_kv_cache: Any, *given: Any, **options: Any) -> Any:
        """`forward` with the logarithms."""
        return self.forward(q, paged_kv_cache, *given, return_lse=True, **options)
