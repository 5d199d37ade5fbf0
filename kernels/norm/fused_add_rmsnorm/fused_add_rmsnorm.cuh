// Addition of the residual and root-mean-square norm of the sum, in place. See params.h for the contract.
#pragma once
#include "norm/fused_add_rmsnorm/params.h"
#include "norm/norm.cuh"

namespace pb {

template <class T, int kVec, int kLane> PB_FN void add(const words<kVec>& a, const words<kVec>& b, float (&s)[kLane]) {
    float v[kLane];
    unpack<T, kVec>(a, s);
    unpack<T, kVec>(b, v);
#pragma unroll
    for (int j = 0; j < kLane; j++) s[j] += v[j];
}

template <class T, int kBlock, int kRows, int kVec> PB_FN void fused_add_rmsnorm(const pb_fused_add_rmsnorm_params& p) {
    using Tile = RowTile<T, kBlock, kRows, kVec>;
    constexpr int kHeld = Tile::kHeld, kLane = Tile::kLane;
    PB_SHARED_ARRAY(float, slots, 2 * 32);
    const T* weight = (const T*)p.weight;
    const float inv_hidden = 1.f / (float)p.hidden;
    u32 turn = 0;

    // The block's loop is uniform: threads without a row load nothing but take part in the reduction.
    for (i64 first = (i64)blockIdx.x * kRows; first < p.rows; first += (i64)gridDim.x * kRows, turn++) {
        const i64 row = first + Tile::group();
        const int n = row < p.rows ? p.hidden : 0;
        T* x = (T*)p.x + row * p.x_stride;
        T* residual = (T*)p.residual + row * p.residual_stride;

        words<kVec> a[kHeld], b[kHeld], w[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int c = Tile::column(i);
            a[i] = c < n ? ld_once<kVec>(x + c) : words<kVec>{};
            b[i] = c < n ? ld_once<kVec>(residual + c) : words<kVec>{};
        }
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int c = Tile::column(i);
            w[i] = c < n ? ld_nc<kVec>(weight + c) : words<kVec>{};
        }
        float s[kHeld][kLane], sum = 0.f;
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            add<T, kVec>(a[i], b[i], s[i]);
            sum = sum_of_squares(s[i], sum);
            if (Tile::column(i) < n) st_once<kVec>(residual + Tile::column(i), pack<T, kVec>(s[i]));
        }
        // Both inputs are needed again for the columns beyond the registers: stored only in the second pass.
        float t[kLane];
#pragma unroll 1
        for (int c = Tile::column(kHeld); c < n; c += Tile::kStep) {
            add<T, kVec>(ld<kVec>(x + c), ld<kVec>(residual + c), t);
            sum = sum_of_squares(t, sum);
        }
        const float r = rsqrt_fast(Tile::sum(sum, slots, turn) * inv_hidden + p.eps);
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int c = Tile::column(i);
            if (c >= n) break;
            st_once<kVec>(x + c, scaled<T, kVec>(s[i], r, w[i], p.weight_bias));
        }
#pragma unroll 1
        for (int c = Tile::column(kHeld); c < n; c += Tile::kStep) {
            add<T, kVec>(ld<kVec>(x + c), ld<kVec>(residual + c), t);
            st_once<kVec>(residual + c, pack<T, kVec>(t));
            st_once<kVec>(x + c, scaled<T, kVec>(t, r, ld_nc<kVec>(weight + c), p.weight_bias));
        }
    }
}

}  // namespace pb
