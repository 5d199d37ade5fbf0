// Both products of the first half of an expert in 8 bits, their activation, and its groups of 128. params.h is the contract.
#pragma once
#include "gemm/scales.cuh"
#include "moe/gated.cuh"
#include "moe/moe_gate_up_quant/params.h"
#include "moe/moe_gate_up_quant/quantise.cuh"

namespace pb {

template <class S> PB_FN void moe_gate_up_quant(const pb_moe_gate_up_quant_params& p) {
    static_assert(S::kOut == 128 && S::kSlabs == 1, "a warp has a group of a row");
    PB_DYN_SMEM(smem);
    const auto scales = [&](const Product<S>& product, const GatedTile& tile) {
        BlockScales<S> s;
        s.a = (const float*)p.x_scale, s.a_step = p.x_scale_k;
        const int row = tile.column + (product.warp_col < S::kOut ? 0 : p.inner);
        s.b = (const float*)p.w_scale + tile.expert * p.w_scale_expert + row / 128 * p.w_scale_row, s.b_step = p.w_scale_k;
#pragma unroll
        for (int m = 0; m < S::kM; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int from = tile.source[product.row(m, h)];
                s.a_at[m][h] = from < 0 ? 0 : (int)(from * p.x_scale_row);
            }
        return s;
    };
    each_gated_tile<S>(p, smem, scales, [&](const Product<S>& product, const GatedTile& tile) {
        float* const slab = (float*)smem;
        const int quad = (int)lane_id() * 4, at = tile.column + quad;
        product.store(slab, 0);
        __syncthreads();
#pragma unroll 1
        for (int i = (int)warp_id(); i < S::kRows; i += S::kThreads / 32) {
            const int row = Product<S>::slab_row(i, 0);
            if (tile.source[row] < 0) continue;
            float g[4], u[4], v[4];
            unpack<float, 16>(ld<16>(slab + i * S::kPitch + quad), g);
            unpack<float, 16>(ld<16>(slab + i * S::kPitch + S::kOut + quad), u);
#pragma unroll
            for (int e = 0; e < 4; e++) v[e] = gated(p.activation, g[e], u[e], p.limit);
            write_group(p, v, tile.first + row, at);
        }
    });
}

}  // namespace pb
