// Root-mean-square norm of rows. See params.h for the contract.
#pragma once
#include "norm/norm.cuh"
#include "norm/rmsnorm/params.h"

namespace pb {

template <class T, int kBlock, int kRows, int kVec> PB_FN void rmsnorm(const pb_rmsnorm_params& p) {
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
        const T* x = (const T*)p.x + row * p.x_stride;
        T* out = (T*)p.out + row * p.out_stride;

        words<kVec> held[kHeld], w[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int c = Tile::column(i);
            held[i] = c < n ? ld_once<kVec>(x + c) : words<kVec>{};
        }
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int c = Tile::column(i);
            w[i] = c < n ? ld_nc<kVec>(weight + c) : words<kVec>{};
        }
        float v[kLane], sum = 0.f;
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            unpack<T, kVec>(held[i], v);
            sum = sum_of_squares(v, sum);
        }
#pragma unroll 1
        for (int c = Tile::column(kHeld); c < n; c += Tile::kStep) {
            unpack<T, kVec>(ld<kVec>(x + c), v);
            sum = sum_of_squares(v, sum);
        }
        const float r = rsqrt_fast(Tile::sum(sum, slots, turn) * inv_hidden + p.eps);
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int c = Tile::column(i);
            if (c >= n) break;
            unpack<T, kVec>(held[i], v);
            st_once<kVec>(out + c, scaled<T, kVec>(v, r, w[i], p.weight_bias));
        }
#pragma unroll 1
        for (int c = Tile::column(kHeld); c < n; c += Tile::kStep) {
            unpack<T, kVec>(ld<kVec>(x + c), v);
            st_once<kVec>(out + c, scaled<T, kVec>(v, r, ld_nc<kVec>(weight + c), p.weight_bias));
        }
    }
}

}  // namespace pb
