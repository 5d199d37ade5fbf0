// Both products of the first half of an expert, and their activation. params.h is the contract.
#pragma once
#include "gemm/finish.cuh"
#include "moe/gated.cuh"
#include "moe/moe_gate_up/params.h"

namespace pb {

struct NoScales {
    template <int kM> PB_FN void get(int, float (&)[kM][2]) const {}
};

template <class T> PB_FN float bias_at(const T* bias, int column, int end) {
    float v[1] = {0.f};
    if (bias && column < end) unpack<T, sizeof(T)>(ld_nc<sizeof(T)>(bias + column), v);
    return v[0];
}

template <class S> PB_FN void moe_gate_up(const pb_moe_gate_up_params& p) {
    using T = typename S::A;
    PB_DYN_SMEM(smem);
    const auto scales = [](const Product<S>&, const GatedTile&) { return NoScales{}; };
    each_gated_tile<S>(p, smem, scales, [&](const Product<S>& product, const GatedTile& tile) {
        constexpr int kQuads = S::kOut / 4;
        float* const slab = (float*)smem;
        const int thread = (int)threadIdx.x, quad = thread % kQuads * 4, at = tile.column + quad;
        const T* const bias = p.bias ? (const T*)((const u8*)p.bias + tile.expert * p.bias_expert) : nullptr;
        float of_gate[4], of_up[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            of_gate[e] = bias_at(bias, at + e, p.inner);
            of_up[e] = bias_at(bias ? bias + p.inner : nullptr, at + e, p.inner);
        }
#pragma unroll 1
        for (int part = 0; part < S::kSlabs; part++) {
            if (part) __syncthreads();
            product.store(slab, part);
            __syncthreads();
#pragma unroll 1
            for (int i = thread / kQuads; i < S::kSlabRows; i += S::kThreads / kQuads) {
                const int row = Product<S>::slab_row(i, part);
                if (at >= p.inner || tile.source[row] < 0) continue;
                float g[4], u[4], v[4];
                unpack<float, 16>(ld<16>(slab + i * S::kPitch + quad), g);
                unpack<float, 16>(ld<16>(slab + i * S::kPitch + S::kOut + quad), u);
#pragma unroll
                for (int e = 0; e < 4; e++) v[e] = gated(p.activation, g[e] + of_gate[e], u[e] + of_up[e], p.limit);
                T* const out = (T*)((u8*)p.out + (i64)(tile.first + row) * p.out_row) + at;
                store_four(out, v, at, p.inner, p.wide);
            }
        }
    });
}

}  // namespace pb
