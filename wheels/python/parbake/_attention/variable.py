"""Attention over blocks of any sizes, for each head of keys others."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.planned import Planned
from parbake._attention.score import modifiers
from parbake._attention.wrong import refuse


class VariableBlockSparseAttentionWrapper(Planned):
    """Attention where queries and keys are cut into blocks of any sizes, and a mask says which block sees which.

    Takes the arguments of `flashinfer.VariableBlockSparseAttentionWrapper`. A row of blocks of a head of keys is a request,
    a key a page.

    Args:
        float_workspace_buffer: Dense, of any element type, on the device that runs: for pieces of requests.
            `parbake.attention_workspace_size` says how large it must be.
        backend: Accepted, without effect.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.
    """

    def __init__(
        self, float_workspace_buffer: torch.Tensor, backend: str = "auto", *, target: str | None = None
    ) -> None:
        super().__init__("VariableBlockSparseAttentionWrapper", float_workspace_buffer, "NHD", False, target)

    def plan(
        self,
        block_mask_map: torch.Tensor,
        block_row_sz: torch.Tensor,
        block_col_sz: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
        q_data_type: Any = None,
        kv_data_type: Any = None,
    ) -> None:
        """Shares the work out. How many keys are seen is read from the device: this waits for it.

        Args:
            block_mask_map: bool [num_kv_heads, rows, columns]: which blocks are seen.
            block_row_sz: i32 [num_kv_heads, rows], queries of each row; every head has as many in all.
            block_col_sz: i32 [num_kv_heads, columns], keys of each column; every head has as many in all.
            num_qo_heads: A multiple of num_kv_heads.
            num_kv_heads: Heads of keys.
            head_dim: 64, 128 or 256.
            causal: Of the keys that a row of blocks has, its last query sees all, the one before all but the last, and so
                on.

        The others are those of `BlockSparseAttentionWrapper.plan`, and so are the errors.
        """
        where, device = self._where, self._device
        self._planned = False
        if block_mask_map.dim() != 3 or block_mask_map.shape[0] != num_kv_heads:
            refuse(ValueError, where, "block_mask_map", f"[{num_kv_heads}, rows, columns]", list(block_mask_map.shape))
        _, rows, columns = block_mask_map.shape
        for name, sizes, count in (("block_row_sz", block_row_sz, rows), ("block_col_sz", block_col_sz, columns)):
            if tuple(sizes.shape) != (num_kv_heads, count):
                refuse(ValueError, where, name, f"[{num_kv_heads}, {count}]", list(sizes.shape))
        mask = block_mask_map.to(device, torch.bool)
        row, column = block_row_sz.to(device, torch.int64), block_col_sz.to(device, torch.int64)
        totals = torch.cat((row.sum(1), column.sum(1))).tolist()
        self._extents = []
        for name, head_totals in (("block_row_sz", totals[:num_kv_heads]), ("block_col_sz", totals[num_kv_heads:])):
            if len(set(head_totals)) > 1:
                refuse(ValueError, where, name, "as many in all for every head", head_totals)
            self._extents.append(head_totals[0] if head_totals else 0)
        queries, keys = self._extents
        # Which column each key is in, and so whether a row sees it.
        of_keys = torch.repeat_interleave(
            torch.arange(columns, device=device).repeat(num_kv_heads), column.view(-1), output_size=num_kv_heads * keys
        ).view(num_kv_heads, 1, keys)
        seen = mask.gather(2, of_keys.expand(-1, rows, -1))
        head, _, key = seen.nonzero(as_tuple=True)
        self._kv_indices = (head * keys + key).int()
        self._kv_indptr = _begins(seen.sum(2).view(-1))
        self._qo_indptr = _begins(row.view(-1))
        group = num_qo_heads // max(num_kv_heads, 1)
        changes = self._modified(num_qo_heads, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta)
        self._heads = (num_kv_heads, group)
        self._settle(
            heads=(group, 1),
            dims=(head_dim, head_dim),
            page_size=1,
            causal=bool(causal),
            window_left=-1,
            split=0,
            rows=0,
            sm_scale=sm_scale,
            modifiers=changes,
            dtypes=(q_data_type, kv_data_type, None),
        )
        self._begin(num_kv_heads * rows, num_kv_heads * queries, True)

    begin_forward = plan

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
    ) -> Any:
        """Attention as planned. Where several heads of queries share one of keys, q and the outputs are copied once.

        Args:
            q: f16 or bf16 [num_qo_heads, queries, head_dim].
            k: [num_kv_heads, keys, head_dim].
            v: As k.
            out: As q; written to, and returned.
            lse: f32 [num_qo_heads, queries], written to if `return_lse`.
            return_lse: Returns the logarithms of the sums of exponentials too, to the base 2.
            enable_pdl: Accepted, without effect.

        Returns:
            The outputs; with `return_lse`, them and the logarithms, which are -inf where no key is seen.
        """
        (kv_heads, group), (queries, keys) = self._heads, self._extents
        for name, tensor, expected in (
            ("q", q, (kv_heads * group, queries)),
            ("k", k, (kv_heads, keys)),
            ("v", v, (kv_heads, keys)),
        ):
            if tensor.dim() != 3 or tuple(tensor.shape[:2]) != expected:
                refuse(ValueError, self._where, name, f"[{expected[0]}, {expected[1]}, head_dim]", list(tensor.shape))
        rows = q.unflatten(0, (kv_heads, group)).transpose(1, 2).flatten(0, 1)
        pages = [t.flatten(0, 1)[:, None, None] for t in (k, v)]
        o, sums = self._launch(rows, *pages, None, None, True, self._scale, None, None)
        o = o.unflatten(0, (kv_heads, queries)).transpose(1, 2).flatten(0, 1)
        o = o if out is None else out.copy_(o)
        if not return_lse:
            return o
        sums = sums.unflatten(0, (kv_heads, queries)).transpose(1, 2).flatten(0, 1)
        return o, sums if lse is None else lse.copy_(sums)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """`run`, with what `plan` was told said again."""
        self._told(pos_encoding_mode, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v)

    def _modified(self, heads: int, pos_encoding_mode: str, *given: float | None) -> dict[str, Any]:
        if pos_encoding_mode == "ALIBI":
            expected = '"NONE" or "ROPE_LLAMA": all heads of keys are one to the kernel'
            refuse(NotImplementedError, self._where, "pos_encoding_mode", expected, '"ALIBI"')
        return modifiers(self._where, heads, self._device, None, pos_encoding_mode, *given)

    def _told(
        self,
        pos_encoding_mode: str,
        logits_soft_cap: float | None,
        sm_scale: float | None,
        rope_scale: float | None,
        rope_theta: float | None,
    ) -> None:
        changes = self._modified(self._q_shape[0], pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta)
        self._change(self._causal, self._window, sm_scale, changes)


def _begins(lengths: torch.Tensor) -> torch.Tensor:
    """Where each begins, and the end."""
    begins = torch.zeros(lengths.shape[0] + 1, dtype=torch.int32, device=lengths.device)
    torch.cumsum(lengths, 0, dtype=torch.int32, out=begins[1:])
    return begins
