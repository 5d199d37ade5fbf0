// Addition of the residual and root-mean-square norm of the sum, in place. params.h is the contract.
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

template <class T, int kBlock, int kRows, int kVec, int kPeel>
PB_FN void fused_add_rmsnorm(const pb_fused_add_rmsnorm_params& p) {
    // Many threads with little each: the two operands take many registers.
    constexpr int kMost = kBlock == 512 && kVec == 16 && !kPeel ? 2 : 4;
    using Tile = RowTile<T, kBlock, kRows, kVec, kPeel, kMost>;
    constexpr int kHeld = Tile::kHeld, kLane = Tile::kLane, kOne = sizeof(T);
    PB_SHARED_ARRAY(float, slots, 32);
    const T* weight = (const T*)p.weight;
    const i64 row = (i64)blockIdx.x * kRows + Tile::group();
    T* x = (T*)p.x + row * p.x_stride;
    T* residual = (T*)p.residual + row * p.residual_stride;
    // Threads without a row touch no memory but take part in the reduction.
    const Tile tile(x, row < p.rows ? p.hidden : 0);

    words<kVec> a[kHeld], b[kHeld], w[kHeld];
    tile.load_once(x, a);
    tile.load_once(residual, b);
    if constexpr (Tile::kWeightFirst) tile.load_weight(weight, w);
    const float inv_hidden = 1.f / (float)p.hidden;  // here: while the loads are under way
    float s[kHeld][kLane], t[kLane], edge[1], sum = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = tile.column(i);
        add<T, kVec>(a[i], b[i], s[i]);
        sum = sum_of_squares(s[i], sum);
        if (c < tile.end) st_once<kVec>(residual + c, pack<T, kVec>(s[i]));
    }
    // Columns beyond the registers need both inputs again: their sum is stored in the second pass.
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) {
        add<T, kVec>(ld<kVec>(x + c), ld<kVec>(residual + c), t);
        sum = sum_of_squares(t, sum);
    }
    if (kPeel && tile.edge < tile.n) {
        add<T, kOne>(ld<kOne>(x + tile.edge), ld<kOne>(residual + tile.edge), edge);
        sum = sum_of_squares(edge, sum);
        st<kOne>(residual + tile.edge, pack<T, kOne>(edge));
    }
    const float r = rsqrt_fast(Tile::sum(sum, slots) * inv_hidden + p.eps);

#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = tile.column(i);
        if (c >= tile.end) break;
        st_once<kVec>(x + c, scaled<T, kVec>(s[i], r, Tile::kWeightFirst ? w[i] : Tile::weight(weight + c), p.weight_bias));
    }
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) {
        add<T, kVec>(ld<kVec>(x + c), ld<kVec>(residual + c), t);
        st<kVec>(residual + c, pack<T, kVec>(t));
        st<kVec>(x + c, scaled<T, kVec>(t, r, Tile::weight(weight + c), p.weight_bias));
    }
    if (kPeel && tile.edge < tile.n)
        st<kOne>(x + tile.edge, scaled<T, kOne>(edge, r, ld_nc<kOne>(weight + tile.edge), p.weight_bias));
}

}  // namespace pb
