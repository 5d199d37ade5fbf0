// Root-mean-square norm of every head of q and k, in place. params.h is the contract.
#pragma once
#include "norm/norm.cuh"
#include "norm/qk_rmsnorm/params.h"

namespace pb {

// The heads of q and k of a token are rows, q's first; a block takes kRows of them, of one token or several.
template <class T, int kBlock, int kRows, int kPeel> PB_FN void qk_rmsnorm(const pb_qk_rmsnorm_params& p) {
    using Tile = RowTile<T, kBlock, kRows, 16, kPeel>;
    constexpr int kHeld = Tile::kHeld, kLane = Tile::kLane, kOne = sizeof(T);
    // Row blockIdx.x * kRows + group, divided by the heads in 32 bits: a group of `heads` blocks takes kRows tokens.
    const u32 heads = (u32)(p.q_heads + p.kv_heads);
    const u32 row = blockIdx.x % heads * kRows + (u32)Tile::group();
    const i64 token = (i64)(blockIdx.x / heads) * kRows + row / heads;
    const int head = (int)(row % heads);
    const bool is_q = head < p.q_heads;
    T* x = is_q ? (T*)p.q + token * p.q_token_stride + head * p.q_head_stride
                : (T*)p.k + token * p.k_token_stride + (head - p.q_heads) * p.k_head_stride;
    const T* weight = (const T*)(is_q ? p.q_weight : p.k_weight);
    // Threads without a row touch no memory but take part in the reduction.
    const Tile tile(x, token < p.tokens ? p.head_dim : 0);

    words<16> held[kHeld], w[kHeld];
    tile.load(x, held);
    if constexpr (Tile::kWeightFirst) tile.load_weight(weight, w);
    const float inv_dim = 1.f / (float)p.head_dim;  // here: while the loads are under way
    float v[kLane], edge[1] = {}, sum = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        unpack<T, 16>(held[i], v);
        sum = sum_of_squares(v, sum);
    }
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) {
        unpack<T, 16>(ld<16>(x + c), v);
        sum = sum_of_squares(v, sum);
    }
    if (kPeel && tile.edge < tile.n) {
        unpack<T, kOne>(ld<kOne>(x + tile.edge), edge);
        sum = sum_of_squares(edge, sum);
    }
    const float r = rsqrt_fast(Tile::sum(sum, nullptr) * inv_dim + p.eps);

#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = tile.column(i);
        if (c >= tile.end) break;
        unpack<T, 16>(held[i], v);
        st<16>(x + c, scaled<T, 16>(v, r, Tile::kWeightFirst ? w[i] : Tile::weight(weight + c), p.weight_bias));
    }
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) {
        unpack<T, 16>(ld<16>(x + c), v);
        st<16>(x + c, scaled<T, 16>(v, r, Tile::weight(weight + c), p.weight_bias));
    }
    if (kPeel && tile.edge < tile.n)
        st<kOne>(x + tile.edge, scaled<T, kOne>(edge, r, ld_nc<kOne>(weight + tile.edge), p.weight_bias));
}

}  // namespace pb
