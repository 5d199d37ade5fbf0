"""Decoding of a batch: a few queries of each request, at the end of its keys."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.planned import Planned, split_tiles
from parbake._attention.score import modifiers
from parbake._attention.wrong import integers, refuse, refuse_given


class BatchDecodeWithPagedKVCacheWrapper(Planned):
    """Attention of one query of each request over keys and values in pages.

    Takes the arguments of `flashinfer.BatchDecodeWithPagedKVCacheWrapper`. `plan` shares the work out on the device, and
    waits for nothing; `run` is one launch, and any number of them may follow a plan. Lengths on the device are never
    copied to the host.

    Args:
        float_workspace_buffer: Dense, of any element type, on the device that runs: for pieces of requests.
            `parbake.attention_workspace_size` says how large it must be. Wrappers of one stream may share it.
        kv_layout: "NHD", pages are [page_size, kv_heads, head_dim], or "HND", [kv_heads, page_size, head_dim].
        use_cuda_graph: Launches may be captured: the batch stays as large as the buffers say, plans are copied to them.
        use_tensor_cores: Accepted, without effect: tensor cores do all of it.
        paged_kv_indptr_buffer: i32 [batch + 1], with `use_cuda_graph`.
        paged_kv_indices_buffer: i32, as long as the most pages of a batch, with `use_cuda_graph`.
        paged_kv_last_page_len_buffer: i32 [batch], with `use_cuda_graph`.
        backend: Accepted, without effect.
        jit_args: Not supported.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: Any = None,
        *,
        target: str | None = None,
    ) -> None:
        super().__init__(type(self).__name__, float_workspace_buffer, kv_layout, use_cuda_graph, target)
        refuse_given(self._where, jit_args=jit_args)
        self._use_tensor_cores = use_tensor_cores
        self._indptr_buffer = self._indices_buffer = self._last_buffer = None
        if use_cuda_graph:
            last = integers(self._where, "paged_kv_last_page_len_buffer", paged_kv_last_page_len_buffer)
            self._indptr_buffer = integers(
                self._where, "paged_kv_indptr_buffer", paged_kv_indptr_buffer, last.shape[0] + 1
            )
            self._indices_buffer = integers(self._where, "paged_kv_indices_buffer", paged_kv_indices_buffer)
            self._last_buffer = last

    @property
    def use_tensor_cores(self) -> bool:
        """As it was given."""
        return self._use_tensor_cores

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
        o_data_type: Any = None,
        data_type: Any = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
        block_tables: Any = None,
        seq_lens: Any = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        q_len_per_req: int = 1,
    ) -> None:
        """Shares the work of a batch out, on the device.

        Args:
            indptr: i32 [batch + 1], where the pages of each request begin. On any device; on the host it is copied, and
                i64 becomes i32.
            indices: i32, the pages of all requests.
            last_page_len: i32 [batch], tokens of the last page of each request.
            num_qo_heads: A multiple of num_kv_heads.
            num_kv_heads: Heads of keys.
            head_dim: 64, 128 or 256.
            page_size: Tokens of a page, 1 to 1048576.
            pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI".
            window_left: Keys before its own that a query sees; -1: all.
            logits_soft_cap: c: scores become c tanh(score / c). None or 0: they do not.
            q_data_type: Element type of q, which run then insists on. None: f16 or bf16, as run is given it.
            kv_data_type: Element type of the cache, in the same way.
            o_data_type: That of q, or None.
            data_type: Both of q and of the cache.
            sm_scale: Of scores; None: 1 / sqrt(head_dim).
            rope_scale: For "ROPE_LLAMA"; None: 1.
            rope_theta: For "ROPE_LLAMA"; None: 10000.
            non_blocking: Accepted, without effect: nothing waits.
            block_tables: Accepted, without effect: indptr and indices say it.
            seq_lens: Accepted, without effect: indptr and last_page_len say it.
            fixed_split_size: Pages: a request is cut every so many (rounded up to 64 tokens), so that its result does not
                depend on the other requests while the workspace has room for all pieces.
            disable_split_kv: No request is cut.
            q_len_per_req: Queries of each request. More than one are causal.

        Raises:
            TypeError: An argument is no tensor, or of another element type.
            ValueError: A shape, a device or a number does not fit.
            NotImplementedError: There is no kernel for it.
        """
        key = (
            num_qo_heads,
            num_kv_heads,
            head_dim,
            page_size,
            pos_encoding_mode,
            window_left,
            logits_soft_cap,
            q_data_type,
            kv_data_type,
            o_data_type,
            data_type,
            sm_scale,
            rope_scale,
            rope_theta,
            fixed_split_size,
            disable_split_kv,
            q_len_per_req,
        )
        if key != self._key:
            self._planned, self._key = False, None
            where = self._where
            self._settle(
                heads=(num_qo_heads, num_kv_heads),
                dims=(head_dim, head_dim),
                page_size=page_size,
                causal=q_len_per_req > 1,
                window_left=window_left,
                split=split_tiles(where, fixed_split_size, disable_split_kv, page_size),
                rows=0,
                sm_scale=sm_scale,
                modifiers=modifiers(
                    where, num_qo_heads, self._device, None, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta
                ),
                dtypes=(q_data_type or data_type, kv_data_type or data_type, o_data_type),
            )
            self._key = key
        last = self._last_buffer
        self._kv_indptr = self._put("indptr", indptr, self._indptr_buffer, None if last is None else last.shape[0] + 1)
        batch = indptr.shape[0] - 1
        self._kv_indices = self._put("indices", indices, self._indices_buffer)
        self._kv_last_page_len = self._put("last_page_len", last_page_len, last, batch)
        self._begin(batch, batch * q_len_per_req, True)

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
        q_len_per_req: int | None = None,
        skip_softmax_threshold_scale_factor: Any = None,
        kv_cache_sf: Any = None,
        score: Any = None,
    ) -> Any:
        """Attention of the batch that was planned: one launch.

        Args:
            q: f16 or bf16 [batch * q_len_per_req, num_qo_heads, head_dim], the last dimension dense.
            paged_kv_cache: (keys, values), each [pages, page_size, num_kv_heads, head_dim], or for layout HND [pages,
                num_kv_heads, page_size, head_dim]; or one tensor with both, [pages, 2, ...]. Strides are free but for the
                last.
            q_scale: A number that q is to be multiplied by.
            k_scale: One for keys.
            v_scale: One for values.
            out: As q; written to, and returned.
            lse: f32 [queries, num_qo_heads], written to if `return_lse`.
            return_lse: Returns the logarithms of the sums of exponentials too, to the base 2.
            enable_pdl: Accepted, without effect.
            window_left: That of the plan, or None.
            sinks: f32 [num_qo_heads]: for each head one more score, which leads to no value.
            q_len_per_req: That of the plan, or None.
            skip_softmax_threshold_scale_factor: Not supported.
            kv_cache_sf: Not supported.
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
        if kv_cache_sf is not None or skip_softmax_threshold_scale_factor is not None:
            refuse_given(self._where, kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        k, v = self._planes(paged_kv_cache)
        return self._launch(q, k, v, out, lse, return_lse, scale, v_scale, sinks, score)

    def run_return_lse(self, q: torch.Tensor, paged_kv_cache: Any, **options: Any) -> Any:
        """`run` with `return_lse`."""
        return self.run(q, paged_kv_cache, return_lse=True, **options)

    def forward(
        self,
        q: torch.Tensor,
        paged_kv_cache: Any,
        pos_encoding_mode: str = "NONE",
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        return_lse: bool = False,
    ) -> Any:
        """`run`, with what `plan` was told said again. Another window is planned anew."""
        changes = modifiers(
            self._where,
            self._qo_heads,
            self._device,
            None,
            pos_encoding_mode,
            logits_soft_cap,
            rope_scale,
            rope_theta,
        )
        self._change(self._causal, window_left, sm_scale, changes)
        return self.run(
            q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse
        )

    def forward_return_lse(self, q: torch.Tensor, paged_kv_cache: Any, *given: Any, **options: Any) -> Any:
        """`forward` with the logarithms."""
        return self.forward(q, paged_kv_cache, *given, return_lse=True, **options)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """`BatchDecodeWithPagedKVCacheWrapper` with `use_cuda_graph`: its three buffers are arguments."""

    def __init__(
        self,
        workspace_buffer: torch.Tensor,
        indptr_buffer: torch.Tensor,
        indices_buffer: torch.Tensor,
        last_page_len_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_tensor_cores: bool = False,
        *,
        target: str | None = None,
    ) -> None:
        super().__init__(
            workspace_buffer,
            kv_layout,
            True,
            use_tensor_cores,
            indptr_buffer,
            indices_buffer,
            last_page_len_buffer,
            target=target,
        )
