"""What the wrappers of several queries of each request share."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.planned import Planned, split_tiles
from parbake._attention.score import masked_by, modifiers, needs
from parbake._attention.wrong import integers, refuse, refuse_given
from parbake.quantization import _segment_packbits, packed_indptr

# Rows of a tile where results are not to depend on the batch: the mean length does not choose it then.
_ROWS = 64


class Prefill(Planned):
    """A batch of which requests have any number of queries."""

    def __init__(
        self,
        workspace: torch.Tensor,
        kv_layout: str,
        use_cuda_graph: bool,
        qo_indptr: Any,
        kv_indptr: Any,
        kv_indices: Any,
        kv_last_page_len: Any,
        mask: Any,
        mask_indptr: Any,
        jit: dict[str, Any],
        target: str | None,
        name: str,
    ) -> None:
        super().__init__(type(self).__name__, workspace, kv_layout, use_cuda_graph, target)
        refuse_given(self._where, **jit)
        self._buffers: list[torch.Tensor | None] = [None] * 4
        self._mask_buffers = None
        if use_cuda_graph:
            qo = integers(self._where, "qo_indptr_buf", qo_indptr)
            kv = integers(self._where, f"{name}kv_indptr_buf", kv_indptr, qo.shape[0])
            self._buffers[:2] = [qo, kv]
            if name:
                self._buffers[2] = integers(self._where, "paged_kv_indices_buf", kv_indices)
                last = integers(self._where, "paged_kv_last_page_len_buf", kv_last_page_len, qo.shape[0] - 1)
                self._buffers[3] = last
            if mask is not None:
                self._mask_buffers = (mask, integers(self._where, "mask_indptr_buf", mask_indptr, qo.shape[0]))

    def _prefill(
        self,
        integers_of: dict[str, torch.Tensor],
        num_tokens: int | None,
        heads: tuple[int, int],
        dims: tuple[int, int],
        page_size: int,
        custom_mask: torch.Tensor | None,
        packed_custom_mask: torch.Tensor | None,
        causal: bool,
        pos_encoding_mode: str,
        sm_scale: float | None,
        window_left: int,
        logits_soft_cap: float | None,
        rope: tuple[float | None, float | None],
        dtypes: tuple[Any, Any, Any],
        fixed_split_size: int | None,
        disable_split_kv: bool,
    ) -> None:
        """The four tensors come by their names, in order: where queries and pages begin, pages, lengths of last pages."""
        where, names = self._where, list(integers_of)
        self._planned = False
        qo_indptr, kv_indptr = integers_of[names[0]], integers_of[names[1]]
        batch = qo_indptr.shape[0] - 1
        if kv_indptr.shape[0] != batch + 1:
            refuse(ValueError, where, names[1], f"[{batch + 1}], as {names[0]}", list(kv_indptr.shape))
        buffer = self._buffers[0]
        if buffer is not None and batch + 1 != buffer.shape[0]:
            expected = f"[{buffer.shape[0]}]: the batch of a graph stays as it is"
            refuse(ValueError, where, names[0], expected, [batch + 1])
        masked = custom_mask is not None or packed_custom_mask is not None
        key = (
            heads,
            dims,
            page_size,
            causal,
            pos_encoding_mode,
            sm_scale,
            window_left,
            logits_soft_cap,
            rope,
            dtypes,
            fixed_split_size,
            disable_split_kv,
        )
        if masked:
            needs(where, "custom_mask" if custom_mask is not None else "packed_custom_mask", "mask")
        least = num_tokens
        if least is None and not qo_indptr.is_cuda and batch >= 0:
            least = int(qo_indptr[-1])
        if masked or self._mask is not None or key != self._key:
            self._key = None
            split = split_tiles(where, fixed_split_size, disable_split_kv, page_size)
            changes = modifiers(where, heads[0], self._device, None, pos_encoding_mode, logits_soft_cap, *rope)
            self._settle(
                heads=heads,
                dims=dims,
                page_size=page_size,
                causal=bool(causal) and not masked,
                window_left=window_left,
                split=split,
                rows=_ROWS if split else 0,
                sm_scale=sm_scale,
                modifiers=changes,
                dtypes=dtypes,
            )
            self._key = key
        self._qo_indptr = self._put(names[0], qo_indptr, buffer, batch + 1)
        self._kv_indptr = self._put(names[1], kv_indptr, self._buffers[1], batch + 1)
        if len(names) > 2:
            self._kv_indices = self._put(names[2], integers_of[names[2]], self._buffers[2])
            self._kv_last_page_len = self._put(names[3], integers_of[names[3]], self._buffers[3], batch)
        self._mask = self._packed(custom_mask, packed_custom_mask, page_size) if masked else None
        if self._mask is not None:
            self._modifiers = {**self._modifiers, **masked_by(self._mask)}
        self._begin(batch, least, False)

    _mask: tuple[torch.Tensor, torch.Tensor] | None = None

    def _packed(self, mask: Any, packed: Any, page_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Bits of a mask, and at which byte those of each request begin. Nothing waits for the device."""
        qo_indptr, kv_indptr = self._qo_indptr, self._kv_indptr
        kv_len = kv_indptr.diff().long()
        if self._kv_last_page_len is not None:
            kv_len = torch.where(kv_len > 0, (kv_len - 1) * page_size + self._kv_last_page_len, 0)
        elements = torch.zeros(kv_len.shape[0] + 1, dtype=torch.int64, device=self._device)
        torch.cumsum(qo_indptr.diff() * kv_len, 0, out=elements[1:])
        begins = packed_indptr(elements, target=self._target)
        if packed is not None:
            bits = packed.to(self._device, torch.uint8, non_blocking=True)
        else:
            flat = mask.reshape(-1).to(self._device, torch.bool, non_blocking=True)
            # A byte more for each request is enough, without knowing their lengths.
            most = flat.shape[0] // 8 + kv_len.shape[0]
            bits = _segment_packbits(flat, elements, begins, little=True, packed=most, target=self._target)
        if self._mask_buffers is None:
            return bits, begins
        kept, kept_begins = self._mask_buffers
        if bits.shape[0] > kept.shape[0]:
            expected = f"at most {kept.shape[0]} bytes, as custom_mask_buf"
            refuse(ValueError, self._where, "custom_mask", expected, bits.shape[0])
        kept[: bits.shape[0]].copy_(bits)
        kept_begins.copy_(begins)
        return kept, kept_begins

    def _told(
        self,
        causal: bool,
        pos_encoding_mode: str,
        window_left: int,
        logits_soft_cap: float | None,
        sm_scale: float | None,
        rope_scale: float | None,
        rope_theta: float | None,
    ) -> None:
        """What `forward` says again."""
        changes = modifiers(
            self._where,
            self._qo_heads,
            self._device,
            self._mask,
            pos_encoding_mode,
            logits_soft_cap,
            rope_scale,
            rope_theta,
        )
        self._change(bool(causal) and self._mask is None, window_left, sm_scale, changes)
