"""A batch that was planned, and its launch: what all wrappers share."""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from parbake._attention import wrong
from parbake._attention.score import scored
from parbake._attention.wrong import refuse
from parbake.attention import attention_plan, batch_attention

# A scale of 0 means the default to the kernel; this one makes all scores 0 as well.
_NO_SCALE = 1e-30
# An item is never cut into pieces of more tiles than that.
_UNCUT = 1 << 30
# Keys of the longest tile: a length of pieces is rounded up to whole ones.
_KEYS = 64
# Rows of a tile times the blocks of a multiprocessor, at most, and the blocks.
_ROWS, _BLOCKS = 256, 4
# A CPU plays the blocks one after the other.
_HOST_PROCESSORS = 4


def attention_workspace_size(head_dim: int, device: Any = None, *, target: str | None = None) -> int:
    """Bytes of a float_workspace_buffer that is large enough for every batch.

    Pieces of requests lie there whose keys are shared out among multiprocessors. The size depends on neither lengths nor
    batch; with `fixed_split_size` a larger one lets more requests be cut.

    Args:
        head_dim: Elements of a value.
        device: The GPU; without it, the current one.
        target: "host": for `target="host"`.

    Returns:
        Bytes, a multiple of 16.
    """
    where = torch.device("cuda" if device is None and target is None else device or "cpu")
    return 2 * processors(where) * _ROWS * (head_dim + 1) * 4


# Dynamo follows a dictionary, and warns of functools.cache.
_COUNTS: dict[torch.device, int] = {}


def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU."""
    if device.type != "cuda":
        return _HOST_PROCESSORS
    count = _COUNTS.get(device)
    if count is None:
        count = _COUNTS[device] = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def plan_words(tokens: int, batch: int, group: int, kv_heads: int, blocks: int) -> int:
    """Words of a plan: enough for the smallest tile, which is 16 rows. op.toml has the sum."""
    items = tokens * group // 16 + batch
    return 16 + 4 * (blocks + 1) + 12 * items + max(blocks, items * kv_heads)


def split_tiles(where: str, fixed_split_size: int | None, disable_split_kv: bool, page_size: int) -> int:
    """FlashInfer counts pages, the kernel tiles of keys."""
    if disable_split_kv:
        return _UNCUT
    if fixed_split_size is None or fixed_split_size == -1:
        return 0
    if fixed_split_size < 1:
        refuse(ValueError, where, "fixed_split_size", "at least 1 page", fixed_split_size)
    return min(-(-fixed_split_size * page_size // _KEYS), _UNCUT)


class Planned:
    """A batch. `arrange` is told what it is, `run` launches."""

    def __init__(self, where: str, workspace: torch.Tensor, kv_layout: str, use_cuda_graph: bool, target: str | None):
        self._where = where
        self._hnd = wrong.layout(where, kv_layout)
        self._use_cuda_graph = use_cuda_graph
        self._target = target
        self._plan: torch.Tensor | None = None
        # Plans that a captured graph may still write to.
        self._kept: list[torch.Tensor] = []
        self._most = 0
        self._planned = False
        # What the plan has room for.
        self._sized: Any = None
        # What `_settle` was told last.
        self._key: Any = None
        self._use(workspace)

    def _use(self, workspace: torch.Tensor) -> None:
        if not isinstance(workspace, torch.Tensor):
            refuse(TypeError, self._where, "float_workspace_buffer", "a tensor", type(workspace).__name__)
        if not workspace.is_contiguous() or workspace.data_ptr() % 16:
            refuse(ValueError, self._where, "float_workspace_buffer", "dense, at a multiple of 16 bytes", "another")
        whole = workspace.view(-1).view(torch.uint8)
        self._partial = whole[: whole.shape[0] // 16 * 16].view(torch.float32)
        self._device = workspace.device
        self._processors = processors(workspace.device)

    @property
    def is_cuda_graph_enabled(self) -> bool:
        """Whether launches may be captured and replayed with other batches: plans go to buffers that stay."""
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: Any = None) -> None:
        """Takes another buffer. The plan stays valid; the second argument is accepted and has no effect."""
        self._use(float_workspace_buffer)

    def end_forward(self) -> None:
        """Has no effect."""

    def _put(
        self, argument: str, value: torch.Tensor, buffer: torch.Tensor | None, entries: int | None = None
    ) -> torch.Tensor:
        """Integers on the device, in the buffer that a graph reads if there is one. Nothing waits for the device."""
        device = self._device
        # The launch looks at what passes here.
        if (
            buffer is None
            and type(value) is torch.Tensor
            and value.dtype is torch.int32
            and value.device == device
            and (entries is None or value.shape[0] == entries)
        ):
            return value
        wrong.integers(self._where, argument, value, entries)
        if buffer is None:
            return value.to(device, torch.int32, non_blocking=True)
        found = value.shape[0]
        if found > buffer.shape[0]:
            refuse(ValueError, self._where, argument, f"at most {buffer.shape[0]} entries, as its buffer", found)
        if value.data_ptr() != buffer.data_ptr():
            (buffer if found == buffer.shape[0] else buffer[:found]).copy_(value, non_blocking=True)
        return buffer

    def _settle(
        self,
        *,
        heads: tuple[int, int],
        dims: tuple[int, int],
        page_size: int,
        causal: bool,
        window_left: int,
        split: int,
        rows: int,
        sm_scale: float | None,
        modifiers: dict[str, Any],
        dtypes: tuple[Any, Any, Any],
    ) -> None:
        """Keeps what does not change from batch to batch."""
        where, (qo_heads, kv_heads), (qk_dim, vo_dim) = self._where, heads, dims
        if kv_heads < 1 or qo_heads < 1 or qo_heads % kv_heads:
            refuse(ValueError, where, "num_qo_heads", f"a multiple of num_kv_heads = {kv_heads}", qo_heads)
        names = ("q_data_type", "kv_data_type", "o_data_type")
        q, self._kv_dtype, o = (wrong.dtype(where, name, given) for name, given in zip(names, dtypes))
        if o is not None and q is not None and o is not q:
            refuse(NotImplementedError, where, "o_data_type", f"{q}, as q_data_type", o)
        self._q_dtype = q
        self._qo_heads, self._kv_heads, self._qk_dim, self._page_size = qo_heads, kv_heads, qk_dim, page_size
        self._q_shape, self._k_shape, self._v_shape = (
            (qo_heads, qk_dim),
            (page_size, kv_heads, qk_dim),
            (page_size, kv_heads, vo_dim),
        )
        self._causal, self._window, self._split, self._rows = causal, window_left, split, rows
        self._scale = 1.0 / math.sqrt(qk_dim) if sm_scale is None else sm_scale or _NO_SCALE
        self._modifiers = modifiers

    def _begin(self, batch: int, tokens: int | None, exact: bool) -> None:
        """A batch of so many requests and queries: its plan is launched, if it is known how many queries there are."""
        self._batch, self._least, self._exact = batch, tokens, exact
        self._tokens = self._seen = None
        if self._use_cuda_graph and self._most:
            # A captured launch has as many queries as the first one; its plan is made for them.
            if tokens is not None and tokens > self._most:
                expected = f"at most {self._most} queries, as the graph is for"
                refuse(ValueError, self._where, "qo_indptr", expected, tokens)
            tokens = self._most
        self._planned = True
        if tokens is not None:
            self._share(tokens)

    def _share(self, tokens: int) -> None:
        """Launches the plan."""
        sized = tokens, self._batch, self._qo_heads, self._kv_heads
        if sized != self._sized:
            self._make_room(tokens)
            self._sized = sized
        attention_plan(
            self._plan,
            self._kv_indptr,
            tokens,
            self._qo_heads,
            self._kv_heads,
            self._qk_dim,
            self._page_size,
            self._qo_indptr,
            self._kv_last_page_len,
            self._causal,
            self._window,
            self._rows,
            self._processors,
            self._split,
            target=self._target,
        )
        self._tokens = tokens
        if tokens > self._most:
            self._most = tokens

    def _make_room(self, tokens: int) -> None:
        """Sees to it that a plan for so many queries has room."""
        kv_heads = self._kv_heads
        words = plan_words(tokens, self._batch, self._qo_heads // kv_heads, kv_heads, _BLOCKS * self._processors)
        if self._plan is None or words > self._plan.shape[0]:
            if self._use_cuda_graph and self._plan is not None:
                self._kept.append(self._plan)
            self._plan = self._partial.new_empty(1 << (words - 1).bit_length(), dtype=torch.int32)

    # Before there is a plan.
    _scale, _window = 1.0, -1
    # The number of queries that the plan is for.
    _tokens: int | None = None
    # Shapes and the element type that the last run had.
    _seen: Any = None
    _k_seen: Any = None
    _v_seen: Any = None
    _q_seen: Any = None
    # Where the batch's integers lie.
    _kv_indptr: torch.Tensor
    _qo_indptr: torch.Tensor | None = None
    _kv_indices: torch.Tensor | None = None
    _kv_last_page_len: torch.Tensor | None = None

    def _launch(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor | None,
        lse: torch.Tensor | None,
        return_lse: bool,
        scale: float,
        v_scale: float | None,
        sinks: torch.Tensor | None,
        score: Any = None,
    ) -> Any:
        """Attention of the batch. k and v are [pages, page_size, kv_heads, dim]."""
        if q.shape != self._seen or k.shape != self._k_seen or v.shape != self._v_seen or q.dtype is not self._q_seen:
            self._see(q, k, v)
        changes = self._modifiers if score is None else scored(self._where, self._modifiers, score)
        try:
            o, sums = batch_attention(
                self._plan,
                self._partial,
                q,
                k,
                v,
                self._kv_indptr,
                self._qo_indptr,
                self._kv_indices,
                self._kv_last_page_len,
                sinks,
                sm_scale=scale,
                v_scale=1.0 if v_scale is None else v_scale,
                causal=self._causal,
                window_left=self._window,
                rows=self._rows,
                processors=self._processors,
                o=out,
                lse=(True if lse is None else lse) if return_lse else None,
                target=self._target,
                **changes,
            )
        except ValueError as error:
            self._explain(error)
            raise
        return (o, sums) if return_lse else o

    def _see(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Tensors that differ from those of the last run: whether they are what the plan is for."""
        where = self._where
        if not self._planned:
            refuse(ValueError, where, "plan", "to be called before run", "no plan")
        for name, tensor, shape, kind in (
            ("q", q, self._q_shape, self._q_dtype),
            ("k", k, self._k_shape, self._kv_dtype),
            ("v", v, self._v_shape, self._kv_dtype),
        ):
            if tensor.shape[1:] != shape:
                expected = f"[.., {', '.join(map(str, shape))}], as the plan"
                refuse(ValueError, where, name, expected, list(tensor.shape))
            if kind is not None and tensor.dtype is not kind:
                refuse(TypeError, where, name, f"{kind}, as the plan", tensor.dtype)
        tokens, least = q.shape[0], self._least
        if least is not None and (tokens < least or self._exact and tokens != least):
            refuse(ValueError, where, "q", f"{'' if self._exact else 'at least '}{least} queries, as the plan", tokens)
        if tokens != self._tokens:
            # The plan is for another number of queries, or was waiting for it.
            self._share(tokens)
        self._seen, self._k_seen, self._v_seen, self._q_seen = q.shape, k.shape, v.shape, q.dtype

    def _explain(self, error: ValueError) -> None:
        """The library calls the buffer `partial`, and counts words."""
        words = re.search(r"partial: shape: expected at least (\d+) words", str(error))
        if words:
            size = int(words[1]) * 4
            got = f"{self._partial.shape[0] * 4} bytes"
            help = "parbake.attention_workspace_size says how large it is for every batch"
            refuse(ValueError, self._where, "float_workspace_buffer", f"at least {size} bytes", got, help)

    def _scaled(self, q_scale: Any, k_scale: Any) -> float:
        """The scale of scores with those of q and k."""
        scale = self._scale
        if q_scale is not None:
            scale *= wrong.number(self._where, "q_scale", q_scale)
        if k_scale is not None:
            scale *= wrong.number(self._where, "k_scale", k_scale)
        return scale

    def _planes(self, cache: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Pages of keys and of values, tokens before heads."""
        if type(cache) is tuple or type(cache) is list:
            k, v = cache
        else:
            k, v = cache.unbind(1)
        return (k.transpose(1, 2), v.transpose(1, 2)) if self._hnd else (k, v)

    def _window_stays(self, window_left: int | None) -> None:
        """A plan leaves out what no query sees, so run cannot look further."""
        if window_left is not None and window_left != self._window:
            refuse(ValueError, self._where, "window_left", f"{self._window}, as the plan", window_left)

    def _change(self, causal: bool, window_left: int, sm_scale: float | None, modifiers: dict[str, Any]) -> None:
        """What `forward` is told instead of `plan`."""
        self._key = None
        if causal != self._causal or window_left != self._window:
            self._causal, self._window, self._tokens, self._seen = causal, window_left, None, None
        self._scale = 1.0 / math.sqrt(self._qk_dim) if sm_scale is None else sm_scale or _NO_SCALE
        self._modifiers = modifiers
