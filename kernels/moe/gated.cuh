// The first half of experts: rows times gate and up of their expert, in one tile, and how both become one.
#pragma once
#include "activation/activation.cuh"
#include "gemm/groups.cuh"
#include "gemm/product.cuh"

namespace pb {

// The first half of a tile's columns are those of gate, the second half the same ones of up: a warp has all of one.
template <class T, int kTile> struct GatedShape : GemmShape<T, T, kTile, kByK> {
    static constexpr bool kTwo = true;
    static constexpr int kOut = GatedShape::kCols / 2;
    static_assert(GatedShape::kWarpsN % 2 == 0 && GatedShape::kBPasses % 2 == 0, "halves of a tile");
};

// In the order of the scalar `activation`: behind those of activation.cuh a clamped one.
inline constexpr int kClamped = 3;

template <int kActivation> PB_FN float gated(float gate, float up, float limit) {
    if constexpr (kActivation != kClamped) {
        return act_and_mul<kActivation>(gate, up);
    } else {
        // NaN stays.
        gate = gate > limit ? limit : gate;
        up = up > limit ? limit : up < -limit ? -limit : up;
        return act_and_mul<kSilu>(1.702f * gate, (up + 1.f) * (1.f / 1.702f));
    }
}
PB_FN float gated(int activation, float gate, float up, float limit) {
    switch (activation) {
        case kSilu: return gated<kSilu>(gate, up, limit);
        case kGelu: return gated<kGelu>(gate, up, limit);
        case kGeluTanh: return gated<kGeluTanh>(gate, up, limit);
        default: return gated<kClamped>(gate, up, limit);
    }
}

// Where a tile is: its first row and column of the results, its expert, and for each of its rows the row of x or -1.
struct GatedTile {
    int first, column, expert;
    const i32* source;
};

// Computes tiles until there are none: only the device knows how many there are, and a grid for as many as there may be
// would be mostly blocks that end at once. `scales(product, tile)` gives the factors of blocks along k, `done(product,
// tile)` takes the sums.
template <class S, class P, class ScalesOf, class Done>
PB_FN void each_gated_tile(const P& p, unsigned char* smem, ScalesOf scales, Done done) {
    PB_SHARED_ARRAY(GroupTile, found, 1);
    PB_SHARED_ARRAY(i32, source, S::kRows);
    const int thread = (int)threadIdx.x;
    if (p.n_tiles == 0) return;
#pragma unroll 1
    for (u32 at = blockIdx.x;; at += gridDim.x) {
        const int m_tile = (int)(at / (u32)p.n_tiles);
        if (warp_id() == 0) find_tile<S::kRows>(p, m_tile, found[0]);
        __syncthreads();
        // What follows is counted group by group: behind a tile that does not exist is none.
        if (found[0].count <= 0) return;
        if (thread < S::kRows) {
            const GroupTile& in = found[0];
            const i32 from = thread < in.count ? (i32)ld_nc<4>((const i32*)p.rows + in.first + thread).w[0] : -1;
            source[thread] = (u32)from < (u32)p.tokens ? from : -1;
        }
        __syncthreads();
        const GatedTile tile = {found[0].first, (int)(at - (u32)m_tile * (u32)p.n_tiles) * S::kOut, found[0].group, source};
        const u8* const gate = (const u8*)p.w + tile.expert * p.w_expert + tile.column * p.w_row;
        const auto row_of = [&](int r) { return source[r] < 0 ? nullptr : (const u8*)p.x + source[r] * p.x_row; };
        constexpr int kBytes = sizeof(typename S::A);
        Copy<S> copy;
        copy.begin(thread, row_of, kBytes, gate, p.w_row, kBytes, p.inner - tile.column, 0, p.hidden);
        copy.halves(p.inner * p.w_row);
        Product<S> product(smem);
        product.run(copy, scales(product, tile), (p.hidden + S::kDepth - 1) / S::kDepth);
        done(product, tile);
        __syncthreads();
    }
}

}  // namespace pb
