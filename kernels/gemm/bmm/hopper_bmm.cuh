// The same products by Hopper's own means. See params.h for the contract.
#pragma once
#include "gemm/bmm/params.h"
#include "gemm/hopper.cuh"

#if PB_DEVICE
namespace pb {

struct BmmEnd {
    const pb_bmm_params& p;

    // Of a block of 128 along k: of the thread's two rows of `left`, and of its columns of `right`.
    template <class S, int kRight>
    PB_FN void factors(const HopperTile& tile, int block, int group, float (&left)[2], float (&right)[kRight]) const {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32;
        const int row = tile.row * S::kRows + group * 64 + 16 * warp + lane / 4, column = tile.column * S::kColumns;
        if constexpr (S::kTurned) {
            // 128 rows of b share one, as a tile has.
            left[0] = left[1] = of_b(tile.batch, tile.row * S::kRows, block);
#pragma unroll
            for (int i = 0; i < kRight; i++) right[i] = of_a(tile.batch, column + i / 2 * 8 + lane % 4 * 2 + i % 2, block);
        } else {
            right[0] = of_b(tile.batch, column, block);
#pragma unroll
            for (int h = 0; h < 2; h++) left[h] = of_a(tile.batch, row + 8 * h, block);
        }
    }
    PB_FN float of_a(int batch, int row, int block) const {
        if (!p.a_scale_k) return 1.f;
        const i64 at = (i64)(min_i(row, p.m - 1) >> p.a_scale_shift) * p.a_scale_row;
        return bits_of<float>(ld_nc<4>((const float*)p.a_scale + batch * p.a_scale_batch + at + block * p.a_scale_k).w[0]);
    }
    PB_FN float of_b(int batch, int row, int block) const {
        if (!p.b_scale_k) return 1.f;
        const i64 at = (i64)(row >> p.b_scale_shift) * p.b_scale_row;
        return bits_of<float>(ld_nc<4>((const float*)p.b_scale + batch * p.b_scale_batch + at + block * p.b_scale_k).w[0]);
    }

    template <class S> PB_FN void write(const unsigned char* panel, int batch, int row, int column, int thread) const {
        using Out = typename S::Out;
        constexpr int kQuads = S::kPanelColumns / 4;
        column += thread % kQuads * 4;
        if (column >= p.n) return;
        const float* a_scale = p.a_scale && !p.a_scale_k ? (const float*)p.a_scale + batch * p.a_scale_batch : nullptr;
        const float* b_scale = p.b_scale && !p.b_scale_k ? (const float*)p.b_scale + batch * p.b_scale_batch : nullptr;
        const Columns<Out> columns(column, p.n, b_scale, p.b_scale_row, p.b_scale_shift, (const Out*)p.bias);
        u8* const out = (u8*)p.out + batch * p.out_batch;
#pragma unroll 1
        for (int r = thread / kQuads; r < S::kPanelRows && row + r < p.m; r += 128 / kQuads) {
            float v[4];
            unpack<float, 16>(ld<16>(panel + r * S::kPitch + thread % kQuads * 16), v);
            const float scale =
                a_scale ? bits_of<float>(ld_nc<4>(a_scale + (i64)(row + r >> p.a_scale_shift) * p.a_scale_row).w[0]) : 1.f;
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = activate(p.activation, fmaf(v[e], scale * columns.scale[e], columns.bias[e]));
            Out* const to = (Out*)(out + (row + r) * p.out_row) + column;
            if (p.wide && column + 4 <= p.n) {
                st<4 * sizeof(Out)>(to, pack<Out, 4 * sizeof(Out)>(v));
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float one[1] = {v[e]};
                    if (column + e < p.n) st<sizeof(Out)>(to + e, pack<Out, sizeof(Out)>(one));
                }
            }
        }
    }
};

template <class S> PB_FN void hopper_bmm(const pb_bmm_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(u64, barriers, 2 * S::kStages);
    PB_SHARED_ARRAY(u32, before, 1);
    const BmmEnd end{p};
    const HopperWork work = {S::kTurned ? p.n_tiles : p.m_tiles, S::kTurned ? p.m_tiles : p.n_tiles, p.batch, p.splits,
                             p.stages, (p.k + S::kDepth - 1) / S::kDepth, (float*)p.partial, (u32*)p.tickets};
    Hopper<S, BmmEnd>(work, S::kTurned ? p.b_map : p.a_map, S::kTurned ? p.a_map : p.b_map, end, smem, barriers, before).run();
}

}  // namespace pb
#endif
