// Root-mean-square norm of rows. params.h is the contract.
#pragma once
#include "norm/norm.cuh"
#include "norm/rmsnorm/params.h"

namespace pb {

template <class T, int kBlock, int kRows, int kVec, int kPeel> PB_FN void rmsnorm(const pb_rmsnorm_params& p) {
    using Tile = RowTile<T, kBlock, kRows, kVec, kPeel>;
    constexpr int kHeld = Tile::kHeld, kLane = Tile::kLane, kOne = sizeof(T);
    PB_SHARED_ARRAY(float, slots, 32);
    const T* weight = (const T*)p.weight;
    const i64 row = (i64)blockIdx.x * kRows + Tile::group();
    const T* x = (const T*)p.x + row * p.x_stride;
    T* out = (T*)p.out + row * p.out_stride;
    // Threads without a row touch no memory but take part in the reduction.
    const Tile tile(x, row < p.rows ? p.hidden : 0);

    words<kVec> held[kHeld], w[kHeld];
    tile.load(x, held);
    if constexpr (Tile::kWeightFirst) tile.load_weight(weight, w);
    const float inv_hidden = 1.f / (float)p.hidden;  // here: while the loads are under way
    float v[kLane], edge[1], sum = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        unpack<T, kVec>(held[i], v);
        sum = sum_of_squares(v, sum);
    }
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) {
        unpack<T, kVec>(ld<kVec>(x + c), v);
        sum = sum_of_squares(v, sum);
    }
    if (kPeel && tile.edge < tile.n) {
        unpack<T, kOne>(ld<kOne>(x + tile.edge), edge);
        sum = sum_of_squares(edge, sum);
    }
    const float r = rsqrt_fast(Tile::sum(sum, slots) * inv_hidden + p.eps);

#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = tile.column(i);
        if (c >= tile.end) break;
        unpack<T, kVec>(held[i], v);
        st<kVec>(out + c, scaled<T, kVec>(v, r, Tile::kWeightFirst ? w[i] : Tile::weight(weight + c), p.weight_bias));
    }
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) {
        unpack<T, kVec>(ld<kVec>(x + c), v);
        st<kVec>(out + c, scaled<T, kVec>(v, r, Tile::weight(weight + c), p.weight_bias));
    }
    if (kPeel && tile.edge < tile.n) {
        unpack<T, kOne>(ld<kOne>(x + tile.edge), edge);  // read again: kept, it costs a register too many
        st<kOne>(out + tile.edge, scaled<T, kOne>(edge, r, ld_nc<kOne>(weight + tile.edge), p.weight_bias));
    }
}

}  // namespace pb
