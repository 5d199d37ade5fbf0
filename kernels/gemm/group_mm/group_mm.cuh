// Products of rows with the matrix of their group. See params.h for the contract.
#pragma once
#include "gemm/finish.cuh"
#include "gemm/group_mm/params.h"
#include "gemm/groups.cuh"
#include "gemm/scales.cuh"

namespace pb {

// The rows of a tile, in shared memory: the group of each, or -1, and its row of a.
struct GroupRows {
    const pb_group_mm_params& p;
    const i32 *group, *source;
    int first, now;  // the first row of the tile; the group that is computed
    const float* scales;

    PB_FN bool get(int r, u8*& to, float& scale) const {
        if (group[r] != now) return false;
        to = (u8*)p.out + (first + r) * p.out_row;
        scale = scales ? bits_of<float>(ld_nc<4>(scales + (source[r] >> p.a_scale_shift) * p.a_scale_row).w[0]) : 1.f;
        return true;
    }
};

// The least group beyond `now` that some row of the tile has; all warps find the same. -1: none.
template <int kRows> PB_FN int next_group(const i32* group, int now) {
    constexpr int kNone = 0x7fffffff;
    int next = kNone;
#pragma unroll
    for (int r = (int)lane_id(); r < kRows; r += 32)
        if (group[r] > now) next = min_i(next, group[r]);
#pragma unroll
    for (int m = 16; m; m >>= 1) next = min_i(next, shfl_xor(next, m));
    return next == kNone ? -1 : next;
}

template <class S, class Out> PB_FN void group_mm(const pb_group_mm_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(GroupTile, found, 1);
    PB_SHARED_ARRAY(i32, group, S::kRows);
    PB_SHARED_ARRAY(i32, source, S::kRows);
    if (p.n_tiles == 0) return;
    const int m_tile = (int)(blockIdx.x / (u32)p.n_tiles), column = ((int)blockIdx.x - m_tile * p.n_tiles) * S::kCols;
    if (warp_id() == 0) find_tile<S::kRows>(p, m_tile, found[0]);
    __syncthreads();
    const GroupTile tile = found[0];
    if (tile.count <= 0) return;
    const int thread = (int)threadIdx.x;
    if (thread < S::kRows) {
        const int row = tile.first + thread;
        int own = -1, from = -1;
        if (thread < tile.count) {
            own = tile.group >= 0 ? tile.group : (int)ld_nc<4>((const i32*)p.ids + row).w[0];
            from = p.rows ? (int)ld_nc<4>((const i32*)p.rows + row).w[0] : row;
            if (own >= p.groups || (u32)from >= (u32)p.tokens) own = -1;
        }
        group[thread] = own < 0 ? -1 : own;
        source[thread] = from;
    }
    __syncthreads();
    // One turn, unless rows side by side say different groups.
#pragma unroll 1
    for (int now = next_group<S::kRows>(group, -1); now >= 0; now = next_group<S::kRows>(group, now)) {
        const int matrix = p.weights ? (int)ld_nc<4>((const i32*)p.weights + now).w[0] : now;
        if ((u32)matrix >= (u32)p.matrices) continue;
        const u8* const b = (const u8*)p.b + matrix * p.b_group + column * p.b_row;
        const auto row_of = [&](int r) {
            return group[r] == now ? (const u8*)p.a + source[r] * p.a_row : nullptr;
        };
        Copy<S> copy;
        copy.begin(thread, row_of, p.a_k, b, p.b_row, p.b_k, p.n - column, 0, p.k);
        Product<S> product(smem);
        const float* const a_scale = (const float*)p.a_scale;
        const float* const b_scale = p.b_scale ? (const float*)p.b_scale + matrix * p.b_scale_group : nullptr;
        BlockScales<S> scales;
        if constexpr (S::kNarrow) {
            scales.a = p.a_scale_k ? a_scale : nullptr;
            scales.b = p.b_scale_k ? b_scale + (column >> p.b_scale_shift) * p.b_scale_row : nullptr;
            scales.a_step = p.a_scale_k, scales.b_step = p.b_scale_k;
#pragma unroll
            for (int m = 0; m < S::kM; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int r = product.row(m, h);
                    scales.a_at[m][h] = group[r] == now ? (int)((source[r] >> p.a_scale_shift) * p.a_scale_row) : 0;
                }
        }
        product.run(copy, scales, (p.k + S::kDepth - 1) / S::kDepth);
        // Read again, so that no register has it meanwhile.
        const GroupRows rows = {p, group, source, found[0].first, now, a_scale && !p.a_scale_k ? a_scale : nullptr};
        finish<S, Out>(product, rows, {1, 0, nullptr, nullptr}, b_scale && !p.b_scale_k ? b_scale : nullptr, p.b_scale_row,
                       p.b_scale_shift, p.bias ? (const Out*)p.bias + matrix * p.bias_group : nullptr, column, p.n,
                       p.activation, p.wide);
        __syncthreads();
    }
}

}  // namespace pb
