"""Mixtures of experts, for PyTorch: routing, and layers of experts in a few launches over the ops of `parbake.moe`.

A layer is `out[t] = sum_j weights[t, j] * down_e(act(gate_e(x[t])) * up_e(x[t]))` with e the j-th expert of token t. Nothing
here waits for the device or reads from it, so that every call can be captured into a CUDA graph and replayed with other
tokens and other routes. Equal calls give equal bits.
"""

from __future__ import annotations

from typing import Any

import torch

from parbake._attention.planned import processors
from parbake._attention.wrong import refuse
from parbake.gemm import group_mm
from parbake.moe import fused_topk_deepseek, moe_align, moe_finalize, moe_gate_up, moe_gate_up_quant, moe_route
from parbake.quantization import fp8_quantize_per_token_group

__all__ = ["fused_experts", "fused_topk_deepseek", "topk_routing"]

_SCORINGS = {"softmax": 0, "sigmoid": 1, "softmax_after_topk": 2}
_ACTIVATIONS = {"silu": 0, "gelu": 1, "gelu_tanh": 2, "swiglu_clamped": 3}
# Elements of a row, and of both sides of a block, that share a factor.
_BLOCK = 128
_WHERE = "fused_moe.fused_experts"


def topk_routing(
    logits: torch.Tensor,
    topk: int,
    scoring: str = "softmax",
    renormalize: bool = True,
    bias: torch.Tensor | None = None,
    n_group: int = 1,
    topk_group: int = 1,
    routed_scaling_factor: float = 1.0,
    *,
    group_best: int = 2,
    target: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which experts each token goes to, and with which weights.

    Args:
        logits: The logits of the router, f16, bf16 or f32 [tokens, experts].
        topk: Experts of a token, 1 to 32.
        scoring: "softmax" over all experts; "sigmoid" of each logit; "softmax_after_topk": the greatest logits, and a softmax
            over those that are chosen.
        renormalize: Whether the weights are divided by their sum; with "softmax_after_topk" they add up to 1 anyway.
        bias: Added to the scores by which experts are chosen, and not to the weights: f32 [experts].
        n_group: Groups of experts, all of one size.
        topk_group: How many groups experts are chosen from: those whose best scores add up to most.
        routed_scaling_factor: What the weights are multiplied by at last.
        group_best: How many scores of a group add up: 2 as DeepSeek-V3 has it, 1 as DeepSeek-V2 has it.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        The weights, f32 [tokens, topk], and the experts, int32 [tokens, topk]: the best first, of equal ones the first. A
        token that has a NaN among its logits has experts all the same, and weights that are NaN.

    Example:
        >>> weights, ids = parbake.fused_moe.topk_routing(logits, 8)
    """
    if scoring not in _SCORINGS:
        refuse(ValueError, "fused_moe.topk_routing", "scoring", " or ".join(_SCORINGS), repr(scoring))
    return moe_route(
        logits, bias, _SCORINGS[scoring], renormalize, n_group, topk_group, group_best, routed_scaling_factor, k=topk,
        target=target,
    )  # fmt: skip


def fused_experts(
    input: torch.Tensor,
    token_selected_experts: torch.Tensor,
    token_final_scales: torch.Tensor,
    fc1_expert_weights: torch.Tensor,
    fc2_expert_weights: torch.Tensor,
    quant_scales: list[torch.Tensor] | tuple[torch.Tensor, ...] | None = None,
    fc1_expert_biases: torch.Tensor | None = None,
    fc2_expert_biases: torch.Tensor | None = None,
    ep_size: int = 1,
    ep_rank: int = 0,
    output: torch.Tensor | None = None,
    activation: str = "silu",
    swiglu_limit: float = 7.0,
    *,
    target: str | None = None,
) -> torch.Tensor:
    """A layer of experts: gate and up, activation, down, and the weighted sum over the experts of each token.

    Weights of 16 bits take four launches, those of 8 bits with factors for blocks five.

    Args:
        input: A row for each token, f16 or bf16 [tokens, hidden]; rows at multiples of 16 bytes.
        token_selected_experts: The experts of each token, int32 or int64 [tokens, k], counted over all ranks. What is no
            expert of this rank (-1, for one) adds nothing.
        token_final_scales: What their outputs are multiplied by, f32 [tokens, k].
        fc1_expert_weights: [experts of this rank, 2 * inner, hidden]: of each expert the rows of gate, then those of up. Of
            the type of input, or e4m3 with `quant_scales`.
        fc2_expert_weights: Down, [experts of this rank, hidden, inner], of the same type.
        quant_scales: Of weights in e4m3 the factors of blocks of 128 x 128 elements: f32 [experts, 2 * inner / 128,
            hidden / 128] and [experts, hidden / 128, inner / 128], rounded up; inner is a multiple of 128. The input and what lies between the products
            are then quantised in groups of 128.
        fc1_expert_biases: Added to gate and up, [experts, 2 * inner], of the type of input; only where weights have 16 bits.
        fc2_expert_biases: Added to down, [experts, hidden], of the type of input.
        ep_size: Ranks that share the experts out: each has as many.
        ep_rank: This one. Its output is a summand: adding up over ranks is the caller's.
        output: [tokens, hidden], of the type of input. Allocated if it is not given.
        activation: "silu", "gelu", "gelu_tanh", or "swiglu_clamped", which is gate * sigmoid(1.702 * gate) * (up + 1) of
            clamped gate and up.
        swiglu_limit: What the last one clamps to.
        target: "host" runs tensors in CPU memory on the CPU, for correctness.

    Returns:
        `output`.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device or number does not fit.
        NotImplementedError: There is no kernel for the combination.

    Example:
        >>> weights, ids = parbake.fused_moe.topk_routing(logits, 8)
        >>> out = parbake.fused_moe.fused_experts(x, ids, weights, gate_up, down)
    """
    x, w1, w2 = input, fc1_expert_weights, fc2_expert_weights
    narrow = _check(x, token_selected_experts, token_final_scales, w1, w2, quant_scales, ep_size, ep_rank, activation)
    if narrow and fc1_expert_biases is not None:
        refuse(NotImplementedError, _WHERE, "fc1_expert_biases", "nothing, where weights have 8 bits", "a tensor")
    (tokens, hidden), k = x.shape, token_selected_experts.shape[1]
    experts, inner, choices = w1.shape[0], w1.shape[1] // 2, tokens * k
    count = processors(x.device)
    ids = token_selected_experts.to(torch.int32).contiguous()
    rows, _, indptr, places = moe_align(
        ids, 1, ep_rank * experts, experts=experts, capacity=choices, tiles=0, target=target
    )
    y = x.new_empty(choices, hidden)
    common: dict[str, Any] = {"processors": count, "target": target}
    if narrow:
        s1, s2 = quant_scales  # type: ignore[misc]
        q, s = fp8_quantize_per_token_group(x, out_dtype="e4m3", scale_dtype="f32", target=target)
        h = x.new_empty((choices, inner), dtype=torch.float8_e4m3fn)
        hs = x.new_empty((choices, inner // _BLOCK), dtype=torch.float32)
        how = _ACTIVATIONS[activation]
        moe_gate_up_quant(h, hs, q, s, w1, s1, indptr, rows, how, swiglu_limit, **common)
        group_mm(y, h, w2, indptr, bias=fc2_expert_biases, a_scale=hs, b_scale=s2, **common)
    else:
        h = x.new_empty(choices, inner)
        moe_gate_up(h, x, w1, indptr, rows, fc1_expert_biases, _ACTIVATIONS[activation], swiglu_limit, **common)
        group_mm(y, h, w2, indptr, bias=fc2_expert_biases, **common)
    return moe_finalize(y, places, token_final_scales, output, target=target)


def _check(x, ids, weights, w1, w2, scales, ep_size, ep_rank, activation):
    """Whether weights have 8 bits. What the ops say of their own arguments is left to them."""

    def wrong(argument, expected, got, kind=ValueError):
        refuse(kind, _WHERE, argument, expected, got)

    named = {
        "input": (x, 2), "token_selected_experts": (ids, 2), "token_final_scales": (weights, 2),
        "fc1_expert_weights": (w1, 3), "fc2_expert_weights": (w2, 3),
    }  # fmt: skip
    for argument, (tensor, rank) in named.items():
        if not isinstance(tensor, torch.Tensor):
            wrong(argument, "a tensor", type(tensor).__name__, TypeError)
        if tensor.dim() != rank:
            wrong(argument, f"{rank} dimensions", tuple(tensor.shape))
    if ids.dtype not in (torch.int32, torch.int64):
        wrong("token_selected_experts", "int32 or int64", ids.dtype, TypeError)
    (tokens, hidden), (experts, both, _) = x.shape, w1.shape
    if ids.shape[0] != tokens or ids.shape[1] == 0:
        wrong("token_selected_experts", f"[{tokens}, k]", tuple(ids.shape))
    if both % 2 or both == 0 or w1.shape[2] != hidden or experts == 0:
        wrong("fc1_expert_weights", f"[experts, 2 * inner, {hidden}]", tuple(w1.shape))
    if tuple(w2.shape) != (experts, hidden, both // 2):
        wrong("fc2_expert_weights", f"[{experts}, {hidden}, {both // 2}]", tuple(w2.shape))
    if activation not in _ACTIVATIONS:
        wrong("activation", " or ".join(_ACTIVATIONS), repr(activation))
    if not 0 <= ep_rank < ep_size:
        wrong("ep_rank", f"0 to {ep_size - 1}, as ep_size says", ep_rank)
    narrow = w1.dtype is torch.float8_e4m3fn
    if not narrow:
        if scales is not None:
            wrong("quant_scales", "nothing, where weights have 16 bits", type(scales).__name__)
        return False
    if not isinstance(scales, (list, tuple)) or len(scales) != 2:
        wrong("quant_scales", "factors of both weights, where these are e4m3", type(scales).__name__, TypeError)
    for i, (scale, shape) in enumerate(zip(scales, (w1.shape, w2.shape))):
        blocks = (experts, -(-shape[1] // _BLOCK), -(-shape[2] // _BLOCK))
        if not isinstance(scale, torch.Tensor) or tuple(scale.shape) != blocks:
            got = tuple(scale.shape) if isinstance(scale, torch.Tensor) else type(scale).__name__
            wrong(f"quant_scales[{i}]", f"f32 {list(blocks)}", got)
    return True
