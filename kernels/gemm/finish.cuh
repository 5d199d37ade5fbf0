// From sums to results: factors, bias, activation, rounding; pieces along k are added up first.
#pragma once
#include "activation/activation.cuh"
#include "gemm/product.cuh"
#include "parbake/atomic.cuh"

namespace pb {

// The values of the scalar `activation`, behind those of activation.cuh.
inline constexpr int kNoActivation = 0, kRelu = 4;

PB_FN float activate(int kind, float v) {
    switch (kind) {
        case kSilu + 1: return act_and_mul<kSilu>(v, 1.f);
        case kGelu + 1: return act_and_mul<kGelu>(v, 1.f);
        case kGeluTanh + 1: return act_and_mul<kGeluTanh>(v, 1.f);
        case kRelu: return v < 0.f ? 0.f : v;
        default: return v;
    }
}

// Pieces of a tile along k, each by a block of its own. A piece leaves its sums, f32 [kRows][kCols]; the block that comes
// last adds all up in the order of k, so that the result does not depend on who that is.
struct Pieces {
    int count, own;
    float* room;  // of all pieces of the tile
    u32* ticket;  // 0 before the launch and after it
};

// What a column's results are multiplied by and what is added.
template <class Out> struct Columns {
    float scale[4], bias[4];
    // Four columns of `n`; null: none.
    PB_FN Columns(int column, int n, const float* scales, i64 step, int shift, const Out* biases) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool there = column + i < n;
            scale[i] = there && scales ? bits_of<float>(ld_nc<4>(scales + ((column + i) >> shift) * step).w[0]) : 1.f;
            float v[1] = {0.f};
            if (there && biases) unpack<Out, sizeof(Out)>(ld_nc<sizeof(Out)>(biases + column + i), v);
            bias[i] = v[0];
        }
    }
};

// Four results side by side, of columns below `n`; `to` is where the first one is. `wide`: they lie at a multiple of their
// size.
template <class Out> PB_FN void store_four(Out* to, const float (&v)[4], int column, int n, bool wide) {
    if (wide && column + 4 <= n) {
        st<4 * sizeof(Out)>(to, pack<Out, 4 * sizeof(Out)>(v));
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float one[1] = {v[e]};
            if (column + e < n) st<sizeof(Out)>(to + e, pack<Out, sizeof(Out)>(one));
        }
    }
}

// Writes a tile. `rows.get(r, to, scale)` says whether row r is one of the results, where its first column is, and its
// factor; `first` is the tile's first column of `n`. `wide`: four results side by side lie at a multiple of their size.
template <class S, class Out, class Rows>
PB_FN void finish(const Product<S>& product, const Rows& rows, const Pieces& pieces, const float* scales, i64 scale_step,
                  int scale_shift, const Out* bias, int first, int n, int activation, bool wide) {
    constexpr int kQuads = S::kCols / 4, kSize = S::kRows * S::kCols;
    PB_SHARED_ARRAY(u32, before, 1);
    const int thread = product.thread;
    float* const slab = (float*)product.smem;
    if (pieces.count > 1) {
        float* const own = pieces.room + (i64)pieces.own * kSize;
#pragma unroll
        for (int m = 0; m < S::kM; m++)
#pragma unroll
            for (int j = 0; j < S::kN; j++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    st<8>(own + product.row(m, h) * S::kCols + product.column(j, 0),
                          {{bits_of<u32>(product.sum[m][j][2 * h]), bits_of<u32>(product.sum[m][j][2 * h + 1])}});
        __syncthreads();
        if (thread == 0) before[0] = ticket(pieces.ticket);
        __syncthreads();
        if (before[0] != (u32)pieces.count - 1) return;
        if (thread == 0) st<4>(pieces.ticket, {{0}});  // for the next launch
    }
    const int column = first + thread % kQuads * 4;
    const Columns<Out> columns(column, n, scales, scale_step, scale_shift, bias);
#pragma unroll 1
    for (int part = 0; part < S::kSlabs; part++) {
        if (pieces.count == 1) {
            if (part) __syncthreads();
            product.store(slab, part);
            __syncthreads();
        }
#pragma unroll 1
        for (int i = thread / kQuads; i < S::kSlabRows; i += S::kThreads / kQuads) {
            const int row = Product<S>::slab_row(i, part);
            u8* to;
            float scale, v[4];
            if (!rows.get(row, to, scale) || column >= n) continue;
            if (pieces.count == 1) {
                unpack<float, 16>(ld<16>(slab + i * S::kPitch + thread % kQuads * 4), v);
            } else {
                const float* from = pieces.room + row * S::kCols + thread % kQuads * 4;
                unpack<float, 16>(ld<16>(from), v);
#pragma unroll 4
                for (int piece = 1; piece < pieces.count; piece++) {
                    float w[4];
                    unpack<float, 16>(ld<16>(from + (i64)piece * kSize), w);
#pragma unroll
                    for (int e = 0; e < 4; e++) v[e] += w[e];
                }
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = activate(activation, fmaf(v[e], scale * columns.scale[e], columns.bias[e]));
            store_four((Out*)to + column, v, column, n, wide);
        }
    }
}

}  // namespace pb
