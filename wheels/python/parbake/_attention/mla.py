"""Multi-head latent attention of a batch whose latents lie in pages."""

from __future__ import annotations

import math
from typing import Any

import torch

from parbake._attention import wrong
from parbake._attention.planned import plan_words, processors
from parbake._attention.wrong import refuse, refuse_given
from parbake.attention import attention_plan, mla_attention

_WHERE = "BatchMLAPagedAttentionWrapper"
_NOPE, _PE = 512, 64
# A scale of 0 means the default to the kernel; this one makes all scores 0 as well.
_NO_SCALE = 1e-30
# Rows of a tile times the blocks of a multiprocessor, at most, and the blocks.
_ROWS, _BLOCKS = 64, 2


class BatchMLAPagedAttentionWrapper:
    """Multi-head latent attention, absorbed, of the queries of each request over its latents in pages.

    Takes the arguments of `flashinfer.mla.BatchMLAPagedAttentionWrapper`. `plan` shares the work out on the device, and
    waits for nothing; `run` is one launch, and any number of them may follow a plan. Lengths on the device are never
    copied to the host: where `qo_indptr` lies there, the first `run` launches the plan, because its queries say how many
    there are.

    Args:
        float_workspace_buffer: Dense, of any element type, on the device that runs: for pieces of requests: 262656
            bytes for each multiprocessor, 35 MB on an H200.
        use_cuda_graph: Launches may be captured: plans are copied to the buffers, the batch stays as large as they say,
            and all batches have at most as many queries as the first one.
        qo_indptr: i32 [batch + 1], with `use_cuda_graph`.
        kv_indptr: i32 [batch + 1], with `use_cuda_graph`.
        kv_indices: i32, as long as the most pages of a batch, with `use_cuda_graph`.
        kv_len_arr: i32 [batch], with `use_cuda_graph`.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        use_cuda_graph: bool = False,
        qo_indptr: torch.Tensor | None = None,
        kv_indptr: torch.Tensor | None = None,
        kv_indices: torch.Tensor | None = None,
        kv_len_arr: torch.Tensor | None = None,
        backend: str = "auto",
        *,
        target: str | None = None,
    ) -> None:
        self._target, self._use_cuda_graph = target, use_cuda_graph
        self._buffers = {
            "qo_indptr": qo_indptr,
            "kv_indptr": kv_indptr,
            "kv_indices": kv_indices,
            "kv_len_arr": kv_len_arr,
        }
        if use_cuda_graph:
            for name, buffer in self._buffers.items():
                wrong.integers(_WHERE, name, buffer)
        self._plan: torch.Tensor | None = None
        # Plans that a captured graph may still write to.
        self._kept: list[torch.Tensor] = []
        self._last: torch.Tensor | None = None
        self._planned = False
        self._tokens: int | None = None
        self._most = 0
        self._use(float_workspace_buffer)

    def _use(self, workspace: torch.Tensor) -> None:
        if not isinstance(workspace, torch.Tensor):
            refuse(TypeError, _WHERE, "float_workspace_buffer", "a tensor", type(workspace).__name__)
        if not workspace.is_contiguous() or workspace.data_ptr() % 16:
            refuse(ValueError, _WHERE, "float_workspace_buffer", "dense, at a multiple of 16 bytes", "another")
        self._device = workspace.device
        self._processors = processors(workspace.device)
        whole = workspace.view(-1).view(torch.uint8)
        needed = 2 * self._processors * _ROWS * (_NOPE + 1) * 4
        if whole.shape[0] < needed:
            refuse(ValueError, _WHERE, "float_workspace_buffer", f"at least {needed} bytes", f"{whole.shape[0]} bytes")
        self._partial = whole[: whole.shape[0] // 16 * 16].view(torch.float32)

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """Whether launches may be captured and replayed with other batches: plans go to buffers that stay."""
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: Any = None) -> None:
        """Takes another buffer. The plan stays valid; the second argument is accepted and has no effect."""
        self._use(float_workspace_buffer)

    def _put(self, argument: str, value: torch.Tensor) -> torch.Tensor:
        """Integers on the device, in the buffer that a graph reads if there is one. Nothing waits for the device."""
        buffer = self._buffers[argument] if self._use_cuda_graph else None
        if buffer is None:
            return value.to(self._device, torch.int32, non_blocking=True)
        entries = value.shape[0]
        if entries > buffer.shape[0]:
            refuse(ValueError, _WHERE, argument, f"at most {buffer.shape[0]} entries, as its buffer", entries)
        if value.data_ptr() != buffer.data_ptr():
            buffer[:entries].copy_(value, non_blocking=True)
        return buffer

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: Any,
        kv_data_type: Any,
        use_profiler: bool = False,
    ) -> None:
        """Shares the work of a batch out, on the device.

        Args:
            qo_indptr: i32 [batch + 1], where the queries of each request begin. On any device; on the host it is copied,
                and i64 becomes i32.
            kv_indptr: i32 [batch + 1], where the pages of each request begin.
            kv_indices: i32, the pages of all requests.
            kv_len_arr: i32 [batch], keys of each request, at most what its pages have room for.
            num_heads: Heads of queries.
            head_dim_ckv: 512.
            head_dim_kpe: 64.
            page_size: Tokens of a page, 1 to 1048576.
            causal: The last query of a request sees all keys, the one before all but the last, and so on.
            sm_scale: Of scores: that of heads before absorption, as 1 / sqrt(128 + 64).
            q_data_type: Element type of queries, which run then insists on. None: f16 or bf16, as run is given it.
            kv_data_type: Element type of the caches: that of queries, or None.
            use_profiler: Not supported.

        Raises:
            TypeError: An argument is no tensor, or of another element type.
            ValueError: A shape, a device or a number does not fit.
            NotImplementedError: There is no kernel for it.
        """
        if use_profiler:
            refuse(NotImplementedError, _WHERE, "use_profiler", "False: the kernel has no profiler", use_profiler)
        for name, dim, expected in (("head_dim_ckv", head_dim_ckv, _NOPE), ("head_dim_kpe", head_dim_kpe, _PE)):
            if dim != expected:
                refuse(NotImplementedError, _WHERE, name, str(expected), dim)
        told = {"q_data_type": q_data_type, "kv_data_type": kv_data_type}
        kinds = [wrong.dtype(_WHERE, name, kind) for name, kind in told.items()]
        for name, kind in zip(told, kinds):
            if kind not in (None, torch.float16, torch.bfloat16):
                refuse(NotImplementedError, _WHERE, name, "f16 or bf16", kind)
        if None not in kinds and kinds[0] is not kinds[1]:
            refuse(NotImplementedError, _WHERE, "kv_data_type", f"{kinds[0]}, as q_data_type", kinds[1])
        batch = wrong.integers(_WHERE, "qo_indptr", qo_indptr).shape[0] - 1
        wrong.integers(_WHERE, "kv_indptr", kv_indptr, batch + 1)
        wrong.integers(_WHERE, "kv_indices", kv_indices)
        wrong.integers(_WHERE, "kv_len_arr", kv_len_arr, batch)
        if self._use_cuda_graph and batch + 1 != self._buffers["qo_indptr"].shape[0]:
            expected = f"[{self._buffers['qo_indptr'].shape[0]}], as its buffer"
            refuse(ValueError, _WHERE, "qo_indptr", expected, [batch + 1])
        tokens = int(qo_indptr[-1]) if qo_indptr.device.type == "cpu" else None
        if self._use_cuda_graph and self._most:
            # A captured launch has as many queries as the first one; its plan is made for them.
            if tokens is not None and tokens > self._most:
                refuse(ValueError, _WHERE, "qo_indptr", f"at most {self._most} queries, as the first plan", tokens)
            tokens = self._most
        self._batch, self._heads, self._page_size, self._causal = batch, num_heads, page_size, bool(causal)
        self._kind = kinds[0] or kinds[1]
        self._scale = float(sm_scale) or _NO_SCALE
        self._qo_indptr, self._kv_indptr = self._put("qo_indptr", qo_indptr), self._put("kv_indptr", kv_indptr)
        self._kv_indices = self._put("kv_indices", kv_indices)
        # The kernel counts the tokens of the last page; where there are more pages than keys, less than none.
        last = self._put("kv_len_arr", kv_len_arr) - (self._kv_indptr.diff() - 1) * page_size
        self._last = self._last.copy_(last) if self._use_cuda_graph and self._last is not None else last
        self._planned, self._tokens = True, None
        if tokens is not None:
            self._share(tokens)

    def _share(self, tokens: int) -> None:
        """Launches the plan."""
        words = plan_words(tokens, self._batch, self._heads, 1, _BLOCKS * self._processors)
        if self._plan is None or words > self._plan.shape[0]:
            if self._use_cuda_graph and self._plan is not None:
                self._kept.append(self._plan)
            self._plan = self._partial.new_empty(1 << (words - 1).bit_length(), dtype=torch.int32)
        attention_plan(
            self._plan,
            self._kv_indptr,
            tokens,
            self._heads,
            1,
            _NOPE + _PE,
            self._page_size,
            self._qo_indptr,
            self._last,
            self._causal,
            processors=self._processors,
            target=self._target,
        )
        self._tokens = tokens
        self._most = max(self._most, tokens)

    def run(
        self,
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        ckv_cache: torch.Tensor,
        kpe_cache: torch.Tensor,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        profiler_buffer: Any = None,
        kv_len: Any = None,
        page_table: Any = None,
        return_lse_base_on_e: bool = False,
        ckv_scale: Any = None,
        kpe_scale: Any = None,
    ) -> Any:
        """Attention as planned: one launch.

        Args:
            q_nope: f16 or bf16 [tokens, num_heads, 512], the last dimension dense.
            q_pe: As q_nope, [tokens, num_heads, 64].
            ckv_cache: As q_nope, [pages, page_size, 512]; the last dimension is dense, other strides are free.
            kpe_cache: As q_nope, [pages, page_size, 64]; both may be views of one tensor.
            out: As q_nope; written to, and returned.
            lse: f32 [tokens, num_heads], written to if `return_lse`.
            return_lse: Returns the logarithms of the sums of exponentials too, to the base 2.
            profiler_buffer: Not supported.
            kv_len: Not supported, nor is page_table: `plan` says it.
            return_lse_base_on_e: They are to the base e instead.
            ckv_scale: Not supported, nor is kpe_scale: they are for 8-bit caches.

        Returns:
            The outputs; with `return_lse`, them and the logarithms, which are -inf where no key is seen.
        """
        if not (profiler_buffer is kv_len is page_table is ckv_scale is kpe_scale is None):
            refuse_given(
                _WHERE,
                profiler_buffer=profiler_buffer,
                kv_len=kv_len,
                page_table=page_table,
                ckv_scale=ckv_scale,
                kpe_scale=kpe_scale,
            )
        if not self._planned:
            refuse(ValueError, _WHERE, "plan", "to be called before run", "no plan")
        if q_nope.shape[0] != self._tokens:
            if self._tokens is not None:
                refuse(ValueError, _WHERE, "q_nope", f"{self._tokens} queries, as the plan", q_nope.shape[0])
            self._share(q_nope.shape[0])
        if q_nope.shape[1:] != (self._heads, _NOPE):
            refuse(ValueError, _WHERE, "q_nope", f"[.., {self._heads}, {_NOPE}], as the plan", list(q_nope.shape))
        if ckv_cache.shape[1:] != (self._page_size, _NOPE):
            refuse(ValueError, _WHERE, "ckv_cache", f"[.., {self._page_size}, {_NOPE}], as the plan", list(ckv_cache.shape))
        if self._kind is not None and q_nope.dtype is not self._kind:
            refuse(TypeError, _WHERE, "q_nope", f"{self._kind}, as the plan", q_nope.dtype)
        o, sums = mla_attention(
            self._plan,
            self._partial,
            q_nope,
            q_pe,
            ckv_cache,
            kpe_cache,
            self._kv_indptr,
            self._qo_indptr,
            self._kv_indices,
            self._last,
            sm_scale=self._scale,
            causal=self._causal,
            processors=self._processors,
            o=out,
            lse=(True if lse is None else lse) if return_lse else None,
            target=self._target,
        )
        if not return_lse:
            return o
        return o, sums.mul_(math.log(2)) if return_lse_base_on_e else sums
