// Norm of rows by mean and variance: the body of two ops, whose parameter structs name alike what they share.
//
// The variance is that of the differences from the mean as it was first found, m0: their squares do not cancel as those
// of the values would. m0 is rounded; the mean of the differences, summed in the same pass, corrects both the variance
// and each difference.
#pragma once
#include "norm/rows.cuh"
#include "parbake/scale.cuh"

namespace pb {

// f32 weights of the columns of one access.
template <int kLane, bool kPeel> PB_FN void ld_floats(const float* ptr, float (&f)[kLane]) {
    constexpr int kBytes = kLane == 1 ? 4 : 16;
#pragma unroll
    for (int i = 0; i < kLane * 4 / kBytes; i++) {
        float part[kBytes / 4];
        if constexpr (kPeel) unpack<float, kBytes>(gather_nc<kBytes>(ptr + i * 4), part);
        else unpack<float, kBytes>(ld_nc<kBytes>(ptr + i * 4), part);
#pragma unroll
        for (int j = 0; j < kBytes / 4; j++) f[i * 4 + j] = part[j];
    }
}

// Q: the type of the output, T itself or one of 8 bits; then with the scale.
template <class T, class Q, int kBlock, int kRows, int kPeel, class P> PB_FN void layernorm_rows(const P& p) {
    using Tile = RowTile<T, kBlock, kRows, 16, kPeel, kMostHeld<kBlock>>;
    constexpr int kHeld = Tile::kHeld, kLane = Tile::kLane, kOne = sizeof(T);
    constexpr int kOut = kLane * (int)sizeof(Q);
    PB_SHARED_ARRAY(float, sums, 32);
    PB_SHARED_ARRAY(float, slots, 64);
    const float* weight = (const float*)p.weight;
    const float* bias = (const float*)p.bias;
    const i64 row = (i64)blockIdx.x * kRows + Tile::group();
    const T* x = (const T*)p.x + row * p.x_stride;
    Q* out = (Q*)p.out + row * p.out_stride;
    // Threads without a row touch no memory but take part in the reductions.
    const Tile tile(x, row < p.rows ? p.hidden : 0);

    words<16> held[kHeld];
    tile.load(x, held);
    float inv = 1.f;
    if constexpr (is_fp8<Q>) inv = reciprocal(p.scale ? *(const float*)p.scale : p.scale_value);
    const float inv_hidden = 1.f / (float)p.hidden;  // here: while the loads are under way

    // Sums of an access are added up before they are added to the thread's: rounding errors of long rows stay small.
    float v[kLane], edge[1] = {}, sum = 0.f;
    auto add_up = [&](const words<16>& a) {
        float part = 0.f;
        unpack<T, 16>(a, v);
#pragma unroll
        for (int j = 0; j < kLane; j++) part += v[j];
        sum += part;
    };
#pragma unroll
    for (int i = 0; i < kHeld; i++) add_up(held[i]);
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) add_up(ld<16>(x + c));
    const bool has_edge = kPeel && tile.edge < tile.n;
    if (has_edge) {
        unpack<T, kOne>(ld<kOne>(x + tile.edge), edge);
        sum += edge[0];
    }
    const float mean = Tile::sum(sum, sums) * inv_hidden;

    float diff = 0.f, square = 0.f;
    auto deviate = [&](const words<16>& a) {
        float part = 0.f, squares = 0.f;
        unpack<T, 16>(a, v);
#pragma unroll
        for (int j = 0; j < kLane; j++) {
            const float d = v[j] - mean;
            part += d;
            squares += d * d;
        }
        diff += part;
        square += squares;
    };
#pragma unroll
    for (int i = 0; i < kHeld; i++)
        if (tile.column(i) < tile.end) deviate(held[i]);
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) deviate(ld<16>(x + c));
    if (has_edge) {
        const float d = edge[0] - mean;
        diff += d;
        square += d * d;
    }
    reduce_two<Tile, false>(diff, square, slots);
    const float rest = diff * inv_hidden;
    // Rounding may leave the corrected variance of equal values below 0.
    const float r = rsqrt_fast(max_f(square * inv_hidden - rest * rest, 0.f) + p.eps);

    auto store = [&](int c, const words<16>& a) {
        float g[kLane], b[kLane];
        ld_floats<kLane, kPeel != 0>(weight + c, g);
        ld_floats<kLane, kPeel != 0>(bias + c, b);
        unpack<T, 16>(a, v);
#pragma unroll
        for (int j = 0; j < kLane; j++) {
            v[j] = (v[j] - mean - rest) * r * g[j] + b[j];
            if constexpr (is_fp8<Q>) v[j] *= inv;
        }
        st_any<kOut, kPeel != 0>(out + c, pack<Q, kOut>(v));
    };
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = tile.column(i);
        if (c >= tile.end) break;
        store(c, held[i]);
    }
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) store(c, ld<16>(x + c));
    if (has_edge) {
        float g[1], b[1];
        ld_floats<1, false>(weight + tile.edge, g);
        ld_floats<1, false>(bias + tile.edge, b);
        unpack<T, kOne>(ld<kOne>(x + tile.edge), edge);  // read again: kept, it costs a register too many
        edge[0] = (edge[0] - mean - rest) * r * g[0] + b[0];
        if constexpr (is_fp8<Q>) edge[0] *= inv;
        st<sizeof(Q)>(out + tile.edge, pack<Q, sizeof(Q)>(edge));
    }
}

}  // namespace pb
