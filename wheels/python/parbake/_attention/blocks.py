"""Attention where a mask says block by block which keys a query sees."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.planned import Planned
from parbake._attention.score import modifiers, needs
from parbake._attention.wrong import integers, refuse
from parbake.quantization import _segment_packbits, packed_indptr


class BlockSparseAttentionWrapper(Planned):
    """Attention over a matrix of blocks, of which some are there (BSR): R queries by C keys each.

    Takes the arguments of `flashinfer.BlockSparseAttentionWrapper`. A row of blocks is a request, a block of keys a page.

    Args:
        float_workspace_buffer: Dense, of any element type, on the device that runs: for pieces of requests.
            `parbake.attention_workspace_size` says how large it must be.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self, float_workspace_buffer: torch.Tensor, backend: str = "auto", *, target: str | None = None
    ) -> None:
        super().__init__("BlockSparseAttentionWrapper", float_workspace_buffer, "NHD", False, target)

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        M: int,
        N: int,
        R: int,
        C: int,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        mask: torch.Tensor | None = None,
        packed_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        block_mask: torch.Tensor | None = None,
    ) -> None:
        """Shares the work out, on the device.

        Args:
            indptr: i32 [M / R + 1], where the blocks of each row begin in indices.
            indices: i32 [blocks], their columns.
            M: Queries, a multiple of R.
            N: Keys, a multiple of C.
            R: Queries of a block.
            C: Keys of a block.
            num_qo_heads: A multiple of num_kv_heads.
            num_kv_heads: Heads of keys.
            head_dim: 64, 128 or 256.
            mask: bool [blocks, R, C]: what of each block is seen. None: all.
            packed_mask: u8, the bits of each row of blocks, [R, its keys], the first one the lowest; those of a row of
                blocks begin at a byte of their own.
            causal: Of the keys that a row of blocks has, its last query sees all, the one before all but the last, and so
                on. It has no effect with a mask.
            pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI": positions count the keys that are there.
            use_fp16_qk_reduction: Accepted, without effect.
            logits_soft_cap: c: scores become c tanh(score / c). None or 0: they do not.
            sm_scale: Of scores; None: 1 / sqrt(head_dim).
            rope_scale: For "ROPE_LLAMA"; None: 1.
            rope_theta: For "ROPE_LLAMA"; None: 10000.
            q_data_type: Element type of q, which run then insists on. None: as run is given it.
            kv_data_type: Element type of k and v, in the same way.
            o_data_type: That of q, or None.
            non_blocking: Accepted, without effect.
            block_mask: Not supported.

        Raises:
            TypeError: An argument is no tensor, or of another element type.
            ValueError: A shape, a device or a number does not fit.
            NotImplementedError: There is no kernel for it.
        """
        where = self._where
        self._planned = False
        if block_mask is not None:
            refuse(NotImplementedError, where, "block_mask", "None: indptr and indices say it", "a tensor")
        for name, all, name_of_block, block in (("M", M, "R", R), ("N", N, "C", C)):
            if block < 1 or all % block:
                refuse(ValueError, where, name, f"a multiple of {name_of_block} = {block}", all)
        rows = M // R
        integers(where, "indptr", indptr, rows + 1)
        count = integers(where, "indices", indices).shape[0]
        self._kv_indptr = self._put("indptr", indptr, None)
        self._kv_indices = self._put("indices", indices, None)
        bits = None
        if mask is not None or packed_mask is not None:
            needs(where, "mask" if mask is not None else "packed_mask", "mask")
            if mask is not None and tuple(mask.shape) != (count, R, C):
                refuse(ValueError, where, "mask", f"[{count}, {R}, {C}]", list(mask.shape))
            bits = self._packed(mask, packed_mask, rows, count, R, C)
        self._mask = bits
        self._settle(
            heads=(num_qo_heads, num_kv_heads),
            dims=(head_dim, head_dim),
            page_size=C,
            causal=bool(causal) and bits is None,
            window_left=-1,
            split=0,
            rows=0,
            sm_scale=sm_scale,
            modifiers=modifiers(
                where, num_qo_heads, self._device, bits, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta
            ),
            dtypes=(q_data_type, kv_data_type, o_data_type),
        )
        self._begin(rows, M, True)
        self._columns = N

    _mask: tuple[torch.Tensor, torch.Tensor] | None = None

    begin_forward = plan

    def _packed(self, mask: Any, packed: Any, rows: int, count: int, r: int, c: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Bits of the blocks of a row, query by query. Nothing waits for the device."""
        indptr = self._kv_indptr.long()
        elements = indptr * (r * c)
        begins = packed_indptr(elements, target=self._target)
        if packed is not None:
            return packed.to(self._device, torch.uint8, non_blocking=True), begins
        blocks = indptr.diff()
        row = torch.repeat_interleave(torch.arange(rows, device=self._device), blocks, output_size=count)
        place = torch.arange(count, device=self._device) - indptr[row]
        first = elements[row][:, None, None] + place[:, None, None] * c
        query = torch.arange(r, device=self._device)[None, :, None] * (blocks[row] * c)[:, None, None]
        to = first + query + torch.arange(c, device=self._device)
        flat = torch.empty(count * r * c, dtype=torch.bool, device=self._device)
        flat[to.view(-1)] = mask.to(self._device, torch.bool, non_blocking=True).reshape(-1)
        most = flat.shape[0] // 8 + rows
        return _segment_packbits(flat, elements, begins, little=True, packed=most, target=self._target), begins

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scale_q: float | None = None,
        scale_k: float | None = None,
        scale_v: float | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
    ) -> Any:
        """Attention as planned: one launch.

        Args:
            q: f16 or bf16 [M, num_qo_heads, head_dim], the last dimension dense.
            k: [N, num_kv_heads, head_dim]. Strides are free but for the last.
            v: As k.
            scale_q: A number that q is to be multiplied by.
            scale_k: One for keys.
            scale_v: One for values.
            out: As q; written to, and returned.
            lse: f32 [M, num_qo_heads], written to if `return_lse`.
            return_lse: Returns the logarithms of the sums of exponentials too, to the base 2.
            enable_pdl: Accepted, without effect.

        Returns:
            The outputs; with `return_lse`, them and the logarithms, which are -inf where no key is seen.
        """
        scale = self._scaled(scale_q, scale_k)
        for name, tensor in (("k", k), ("v", v)):
            if tensor.dim() != 3 or tensor.shape[0] != self._columns:
                refuse(ValueError, self._where, name, f"[{self._columns}, heads, head_dim]", list(tensor.shape))
        blocks = (-1, self._page_size)
        k, v = k.unflatten(0, blocks), v.unflatten(0, blocks)
        return self._launch(q, k, v, out, lse, return_lse, scale, scale_v, None)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scale_q: float | None = None,
        scale_k: float | None = None,
        scale_v: float | None = None,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """`run`, with what `plan` was told said again."""
        self._told(pos_encoding_mode, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v, scale_q, scale_k, scale_v)

    def _told(
        self,
        pos_encoding_mode: str,
        logits_soft_cap: float | None,
        sm_scale: float | None,
        rope_scale: float | None,
        rope_theta: float | None,
    ) -> None:
        where, heads, mask = self._where, self._q_shape[0], self._mask
        changes = modifiers(
            where, heads, self._device, mask, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta
        )
        self._change(self._causal, self._window, sm_scale, changes)
