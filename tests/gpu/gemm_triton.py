"""A product in Triton to compare with: the plain form that its tutorial gives, with factors of blocks for 8 bits."""

import torch
import triton
import triton.language as tl

# Rows, columns and elements along k of a tile, warps, stages: the best of these is timed.
TILES = {
    "few": [(16, 64, 256, 4, 4), (64, 64, 128, 4, 4)],
    "many": [(128, 256, 64, 8, 4), (128, 128, 64, 4, 4)],
    "blocks few": [(16, 64, 128, 4, 4), (64, 64, 128, 4, 4)],
    "blocks many": [(128, 128, 128, 8, 3), (64, 128, 128, 4, 4)],
}


@triton.jit(do_not_specialize=["m"])
def _product(
    a, b, out, sa, sb, m, n, k, blocks, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    # Eight rows of tiles at a time, for the second cache.
    group, at = tl.program_id(0) // (8 * tiles_n), tl.program_id(0) % (8 * tiles_n)
    height = min(tiles_m - group * 8, 8)
    row, column = group * 8 + at % height, at // height
    rows = (row * BM + tl.arange(0, BM)) % m
    columns = (column * BN + tl.arange(0, BN)) % n
    depth = tl.arange(0, BK)
    pa = a + rows[:, None].to(tl.int64) * k + depth[None, :]
    pb = b + columns[None, :].to(tl.int64) * k + depth[:, None]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, tl.cdiv(k, BK)):
        inside = depth < k - i * BK
        x = tl.load(pa, mask=inside[None, :], other=0.0)
        y = tl.load(pb, mask=inside[:, None], other=0.0)
        if BLOCKS:
            factor = tl.load(sa + rows * blocks + i)[:, None] * tl.load(sb + columns // 128 * blocks + i)[None, :]
            sums += tl.dot(x, y) * factor
        else:
            sums = tl.dot(x, y, sums)
        pa += BK
        pb += BK
    rows, columns = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    to = out + rows[:, None].to(tl.int64) * n + columns[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def product(a, b, out, sa=None, sb=None, tile=None):
    """out = a bᵀ, dense; with factors of 1 x 128 elements of a and 128 x 128 of b."""
    (m, k), n = a.shape, b.shape[0]
    bm, bn, bk, warps, stages = tile
    _product[(triton.cdiv(m, bm) * triton.cdiv(n, bn),)](
        a, b, out, sa, sb, m, n, k, 0 if sa is None else sa.shape[1], BM=bm, BN=bn, BK=bk, BLOCKS=sa is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def tiles(m, blocks):
    return TILES[("blocks " if blocks else "") + ("few" if m <= 64 else "many")]


def narrow(tile, dtype):
    """The same bytes of a row."""
    bm, bn, bk, warps, stages = tile
    return (bm, bn, bk * 2, warps, stages) if torch.empty(0, dtype=dtype).element_size() == 1 else tile
