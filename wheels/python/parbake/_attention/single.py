"""Attention of one request, without a plan of the caller's."""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention import wrong
from parbake._attention.planned import _BLOCKS, _NO_SCALE, attention_workspace_size, plan_words, processors
from parbake._attention.score import modifiers, needs, scored
from parbake._attention.wrong import refuse, refuse_given
from parbake.attention import attention_plan, batch_attention
from parbake.quantization import packbits

# Pages may have that many tokens.
_PAGE = 1 << 20
_INDPTR: dict[torch.device, torch.Tensor] = {}


def single_decode_with_kv_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: float | None = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    return_lse: bool = False,
    *,
    score: Any = None,
    target: str | None = None,
) -> Any:
    """Attention of one query over the keys and values of one request.

    Takes the arguments of `flashinfer.single_decode_with_kv_cache`.

    Args:
        q: f16 or bf16 [qo_heads, head_dim], the last dimension dense.
        k: [kv_len, kv_heads, head_dim], or for layout HND [kv_heads, kv_len, head_dim]. Strides are free but for the last.
        v: As k.
        kv_layout: "NHD" or "HND".
        pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI".
        use_tensor_cores: Accepted, without effect: tensor cores do all of it.
        q_scale: A number that q is to be multiplied by.
        k_scale: One for keys.
        v_scale: One for values.
        window_left: Keys before the last that the query sees; -1: all.
        logits_soft_cap: c: scores become c tanh(score / c). None or 0: they do not.
        sm_scale: Of scores; None: 1 / sqrt(head_dim).
        rope_scale: For "ROPE_LLAMA"; None: 1.
        rope_theta: For "ROPE_LLAMA"; None: 10000.
        return_lse: Returns the logarithms of the sums of exponentials too, to the base 2.
        score: A `ScoreVariant`, or what its `given` returns. None: scores are as the other arguments say.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        As q; with `return_lse`, it and f32 [qo_heads].

    Raises:
        TypeError: A tensor is of another element type.
        ValueError: A shape, stride, device or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
    """
    where = "single_decode_with_kv_cache"
    if q.dim() != 2:
        refuse(ValueError, where, "q", "[qo_heads, head_dim]", list(q.shape))
    changes = modifiers(where, q.shape[0], q.device, None, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta)
    if score is not None:
        changes = scored(where, changes, score)
    scales = (sm_scale, q_scale, k_scale, v_scale)
    o, lse = _attend(where, q.unsqueeze(0), k, v, kv_layout, False, window_left, scales, changes, return_lse, target)
    return (o.squeeze(0), lse.squeeze(0)) if return_lse else o.squeeze(0)


def single_prefill_with_kv_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_q: Any = None,
    scale_k: Any = None,
    scale_v: Any = None,
    o_dtype: Any = None,
    custom_mask: torch.Tensor | None = None,
    packed_custom_mask: torch.Tensor | None = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    backend: str = "auto",
    return_lse: bool = False,
    kv_cache_sf: Any = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
    *,
    score: Any = None,
    target: str | None = None,
) -> Any:
    """Attention of the queries of one request over its keys and values.

    Takes the arguments of `flashinfer.single_prefill_with_kv_cache`.

    Args:
        q: f16 or bf16 [qo_len, qo_heads, head_dim_qk], the last dimension dense.
        k: [kv_len, kv_heads, head_dim_qk], or for layout HND [kv_heads, kv_len, head_dim_qk]. Strides are free but for the
            last.
        v: As k, of head_dim_vo.
        scale_q: A number that q is to be multiplied by.
        scale_k: One for keys, as k_scale.
        scale_v: One for values, as v_scale.
        o_dtype: That of q, or None.
        custom_mask: bool [qo_len, kv_len]: true where a query sees a key. `causal` has no effect then.
        packed_custom_mask: u8, its bits, the first one the lowest.
        causal: The last query sees all keys, the one before all but the last, and so on.
        kv_layout: "NHD" or "HND".
        pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI".
        use_fp16_qk_reduction: Accepted, without effect: sums are f32.
        sm_scale: Of scores; None: 1 / sqrt(head_dim_qk).
        window_left: Keys before its own that a query sees; -1: all.
        logits_soft_cap: c: scores become c tanh(score / c). None or 0: they do not.
        rope_scale: For "ROPE_LLAMA"; None: 1.
        rope_theta: For "ROPE_LLAMA"; None: 10000.
        backend: Accepted, without effect.
        return_lse: Returns the logarithms of the sums of exponentials too, to the base 2.
        kv_cache_sf: Not supported.
        k_scale: A number that keys are to be multiplied by.
        v_scale: One for values.
        score: A `ScoreVariant`, or what its `given` returns. None: scores are as the other arguments say.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        [qo_len, qo_heads, head_dim_vo]; with `return_lse`, it and f32 [qo_len, qo_heads]: -inf where no key is seen.

    Raises:
        TypeError: A tensor is of another element type.
        ValueError: A shape, stride, device or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
    """
    where = "single_prefill_with_kv_cache"
    refuse_given(where, kv_cache_sf=kv_cache_sf)
    if q.dim() != 3:
        refuse(ValueError, where, "q", "[qo_len, qo_heads, head_dim]", list(q.shape))
    if o_dtype is not None and wrong.dtype(where, "o_dtype", o_dtype) is not q.dtype:
        refuse(NotImplementedError, where, "o_dtype", f"{q.dtype}, as q", o_dtype)
    mask = None
    if custom_mask is not None or packed_custom_mask is not None:
        needs(where, "custom_mask" if custom_mask is not None else "packed_custom_mask", "mask")
        bits = packed_custom_mask
        if bits is None:
            bits = packbits(custom_mask.reshape(-1), "little", target=target)
        mask = (bits, torch.tensor([0, bits.shape[0]], dtype=torch.int32).to(q.device, non_blocking=True))
    changes = modifiers(where, q.shape[1], q.device, mask, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta)
    if score is not None:
        changes = scored(where, changes, score)
    scales = (
        sm_scale,
        scale_q,
        scale_k if k_scale is None else k_scale,
        scale_v if v_scale is None else v_scale,
    )
    causal = bool(causal) and mask is None
    o, lse = _attend(where, q, k, v, kv_layout, causal, window_left, scales, changes, return_lse, target)
    return (o, lse) if return_lse else o


def single_prefill_with_kv_cache_return_lse(*given: Any, **options: Any) -> Any:
    """`single_prefill_with_kv_cache` with `return_lse`.

    Returns:
        The outputs and the logarithms.
    """
    return single_prefill_with_kv_cache(*given, **{**options, "return_lse": True})


def _attend(
    where: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kv_layout: str,
    causal: bool,
    window_left: int,
    scales: tuple[float | None, ...],
    changes: dict[str, Any],
    return_lse: bool,
    target: str | None,
) -> Any:
    """A batch of one request, whose keys are one page."""
    if k.dim() != 3 or v.dim() != 3:
        name, tensor = ("k", k) if k.dim() != 3 else ("v", v)
        refuse(ValueError, where, name, "three dimensions: [kv_len, kv_heads, head_dim] as NHD", list(tensor.shape))
    if wrong.layout(where, kv_layout):
        k, v = k.transpose(0, 1), v.transpose(0, 1)
    (tokens, qo_heads, qk_dim), (kv_len, kv_heads, _) = q.shape, k.shape
    if kv_heads == 0 or qo_heads % kv_heads:
        refuse(ValueError, where, "q", f"heads: a multiple of the {kv_heads} of k", qo_heads)
    sm_scale, q_scale, k_scale, v_scale = scales
    scale = qk_dim**-0.5 if sm_scale is None else sm_scale or _NO_SCALE
    for name, factor in (("q_scale", q_scale), ("k_scale", k_scale)):
        if factor is not None:
            scale *= wrong.number(where, name, factor)
    if 0 < kv_len <= _PAGE:
        page_size, indptr = kv_len, _page(q)
        k, v = k.unsqueeze(0), v.unsqueeze(0)
    else:
        page_size, indptr = 1, _page(q) * kv_len
        k, v = k.unsqueeze(1), v.unsqueeze(1)
    # Both come from the allocator, which knows of streams: two of them may be in this function at once.
    count = processors(q.device)
    plan = q.new_empty(plan_words(tokens, 1, qo_heads // kv_heads, kv_heads, _BLOCKS * count), dtype=torch.int32)
    partial = q.new_empty(attention_workspace_size(v.shape[-1], q.device) // 4, dtype=torch.float32)
    attention_plan(
        plan,
        indptr,
        tokens,
        qo_heads,
        kv_heads,
        qk_dim,
        page_size,
        causal=causal,
        window_left=window_left,
        processors=count,
        target=target,
    )
    return batch_attention(
        plan,
        partial,
        q,
        k,
        v,
        indptr,
        sm_scale=scale,
        v_scale=1.0 if v_scale is None else wrong.number(where, "v_scale", v_scale),
        causal=causal,
        window_left=window_left,
        processors=count,
        lse=return_lse,
        target=target,
        **changes,
    )


def _page(q: torch.Tensor) -> torch.Tensor:
    """Where the only page begins and ends, on the device."""
    found = _INDPTR.get(q.device)
    if found is None:
        found = torch.arange(2, dtype=torch.int32, device=q.device)
        # One that a graph makes has no value before the graph is replayed.
        if not (q.is_cuda and torch.cuda.is_current_stream_capturing()):
            _INDPTR[q.device] = found
    return found
