// Products of matrices, batch by batch. See params.h for the contract.
#pragma once
#include "gemm/bmm/params.h"
#include "gemm/finish.cuh"
#include "gemm/scales.cuh"

namespace pb {

// Which tile a block computes: tiles of eight rows of tiles are neighbours, so that what they share is in the cache.
struct TilePlace {
    int m, n;
    PB_FN TilePlace(u32 tile, u32 m_tiles, u32 n_tiles) {
        constexpr u32 kTogether = 8;
        const u32 band = tile / (kTogether * n_tiles), within = tile - band * kTogether * n_tiles;
        const u32 height = min_i(m_tiles - band * kTogether, kTogether);
        n = (int)(within / height);
        m = (int)(band * kTogether + within % height);
    }
};

struct BmmRows {
    u8* out;
    i64 step;
    int rows, shift;
    const float* scales;
    i64 scale_step;
    PB_FN bool get(int r, u8*& to, float& scale) const {
        if (r >= rows) return false;
        to = out + r * step;
        scale = scales ? bits_of<float>(ld_nc<4>(scales + (r >> shift) * scale_step).w[0]) : 1.f;
        return true;
    }
};

template <class S, class Out> PB_FN void bmm(const pb_bmm_params& p) {
    PB_DYN_SMEM(smem);
    const u32 tiles = (u32)p.m_tiles * (u32)p.n_tiles;
    if (tiles == 0 || p.batch == 0) return;
    const u32 plane = blockIdx.x / tiles, tile = blockIdx.x - plane * tiles;
    const int split = (int)(plane / (u32)p.batch), batch = (int)(plane - (u32)split * (u32)p.batch);
    const TilePlace place(tile, (u32)p.m_tiles, (u32)p.n_tiles);
    const int row = place.m * S::kRows, column = place.n * S::kCols, rows = min_i(p.m - row, (int)S::kRows);
    const int block = split * p.stages, from = block * S::kDepth;
    const int stages = min_i(p.stages, (p.k + S::kDepth - 1) / S::kDepth - block);

    const u8* const a = (const u8*)p.a + batch * p.a_batch + row * p.a_row;
    const u8* const b = (const u8*)p.b + batch * p.b_batch + column * p.b_row;
    const auto row_of = [&](int r) { return r < rows ? a + r * p.a_row : nullptr; };
    Copy<S> copy;
    copy.begin((int)threadIdx.x, row_of, p.a_k, b, p.b_row, p.b_k, p.n - column, from, p.k);

    Product<S> product(smem);
    const float* a_scale = p.a_scale ? (const float*)p.a_scale + batch * p.a_scale_batch : nullptr;
    const float* b_scale = p.b_scale ? (const float*)p.b_scale + batch * p.b_scale_batch : nullptr;
    BlockScales<S> scales;
    if constexpr (S::kNarrow) {
        scales.a = p.a_scale_k ? a_scale + block * p.a_scale_k : nullptr;
        scales.b = p.b_scale_k ? b_scale + (column >> p.b_scale_shift) * p.b_scale_row + block * p.b_scale_k : nullptr;
        scales.a_step = p.a_scale_k, scales.b_step = p.b_scale_k;
#pragma unroll
        for (int m = 0; m < S::kM; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                scales.a_at[m][h] = (int)(((row + min_i(product.row(m, h), rows - 1)) >> p.a_scale_shift) * p.a_scale_row);
    }
    product.run(copy, scales, stages);

    BmmRows to;
    to.out = (u8*)p.out + batch * p.out_batch + row * p.out_row, to.step = p.out_row;
    to.rows = rows, to.shift = p.a_scale_shift;
    to.scales = a_scale && !p.a_scale_k ? a_scale + (row >> p.a_scale_shift) * p.a_scale_row : nullptr;
    to.scale_step = p.a_scale_row;
    const i64 item = (i64)batch * tiles + tile;
    const Pieces pieces = {p.splits, split, (float*)p.partial + item * p.splits * (S::kRows * S::kCols),
                           (u32*)p.tickets + item};
    finish<S, Out>(product, to, pieces, b_scale && !p.b_scale_k ? b_scale : nullptr, p.b_scale_row, p.b_scale_shift,
                   (const Out*)p.bias, column, p.n, p.activation, p.wide);
}

}  // namespace pb
