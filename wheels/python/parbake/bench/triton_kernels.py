"""Triton kernels to compare with: each the plain form that its tutorial would give, with sizes that suit an H200."""

import os

import triton
import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def _block(n):
    return triton.next_power_of_2(n)


def _warps(block):
    return max(1, min(16, block // 512))


@triton.jit
def _rmsnorm(x, weight, out, hidden, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * hidden
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    v = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / hidden + eps)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, (v * scale * w).to(out.dtype.element_ty), mask=inside)


def rmsnorm(x, weight, out, eps):
    rows, hidden = x.shape
    block = _block(hidden)
    _rmsnorm[(rows,)](x, weight, out, hidden, eps, BLOCK=block, num_warps=_warps(block))
    return out


@triton.jit
def _fused_add_rmsnorm(x, residual, weight, hidden, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * hidden
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    v = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(residual + row + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + row + at, v.to(residual.dtype.element_ty), mask=inside)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / hidden + eps)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(x + row + at, (v * scale * w).to(x.dtype.element_ty), mask=inside)


def fused_add_rmsnorm(x, residual, weight, eps):
    rows, hidden = x.shape
    block = _block(hidden)
    _fused_add_rmsnorm[(rows,)](x, residual, weight, hidden, eps, BLOCK=block, num_warps=_warps(block))


@triton.jit
def _silu_and_mul(x, out, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < hidden
    a = tl.load(x + row * 2 * hidden + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + row * 2 * hidden + hidden + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * hidden + at, (a * tl.sigmoid(a) * b).to(out.dtype.element_ty), mask=inside)


def silu_and_mul(x, out):
    rows, hidden = out.shape
    block = min(_block(hidden), 4096)
    _silu_and_mul[(rows, triton.cdiv(hidden, block))](x, out, hidden, BLOCK=block, num_warps=8)
    return out


@triton.jit
def _softmax(x, out, columns: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    largest = -float("inf")
    total = 0.0
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        v = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
        found = tl.maximum(largest, tl.max(v, axis=0))
        total = total * tl.exp(largest - found) + tl.sum(tl.exp(v - found), axis=0)
        largest = found
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        v = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
        tl.store(out + row + at, tl.exp(v - largest) / total, mask=at < columns)


def softmax(x, out):
    rows, columns = x.shape
    block = min(_block(columns), 8192)
    _softmax[(rows,)](x, out, columns, BLOCK=block, num_warps=16)
    return out


@triton.jit
def _rope(q, positions, heads, theta_log2, HALF: tl.constexpr, HEADS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token).to(tl.float32)
    i = tl.arange(0, HALF)
    angle = position * tl.exp2(-theta_log2 * i.to(tl.float32) / HALF)
    cos, sin = tl.cos(angle)[None, :], tl.sin(angle)[None, :]
    head = tl.arange(0, HEADS)
    at = q + token * heads * 2 * HALF + head[:, None] * 2 * HALF + i[None, :]
    inside = (head < heads)[:, None]
    a = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(at, (a * cos - b * sin).to(q.dtype.element_ty), mask=inside)
    tl.store(at + HALF, (b * cos + a * sin).to(q.dtype.element_ty), mask=inside)


def rope(q, k, positions, theta_log2):
    """Half-split pairs, in place, for q and k: two launches."""
    for tensor in (q, k):
        tokens, heads, dim = tensor.shape
        _rope[(tokens,)](tensor, positions, heads, theta_log2, HALF=dim // 2, HEADS=_block(heads), num_warps=4)


@triton.jit
def _group_quant(x, out, scales, groups, least, GROUP: tl.constexpr, MANY: tl.constexpr):
    group = tl.program_id(0).to(tl.int64) * MANY + tl.arange(0, MANY)
    at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = (group < groups)[:, None]
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(v), axis=1), least) / 448.0
    q = tl.minimum(tl.maximum(v / scale[:, None], -448.0), 448.0)
    tl.store(out + at, q.to(out.dtype.element_ty), mask=inside)
    tl.store(scales + group, scale, mask=group < groups)


def group_quant(x, out, scales, group, least):
    """e4m3 with an f32 scale for each group of a row."""
    groups = x.numel() // group
    _group_quant[(triton.cdiv(groups, 16),)](x, out, scales, groups, least, GROUP=group, MANY=16, num_warps=4)
    return out, scales
