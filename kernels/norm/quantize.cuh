// Root-mean-square norm of rows with 8-bit outputs: the body of four ops, whose parameter structs name alike what they
// share. Registers hold the values times their weights between the two passes: as many as values and weights would
// take, and all that the second pass and the largest magnitude need. So a row's scale costs no reduction of its own:
// its largest magnitude is that of the products, times the row's factor.
#pragma once
#include "norm/rows.cuh"
#include "parbake/scale.cuh"

namespace pb {

// kAdd: the rows are the sums x + residual, and the residual becomes them. kPerRow: each row's scale is found, else it
// is given.
template <class T, class Q, bool kAdd, bool kPerRow, int kBlock, int kRows, int kPeel, class P>
PB_FN void rmsnorm_quantized(const P& p) {
    using Tile = RowTile<T, kBlock, kRows, 16, kPeel, kMostHeld<kBlock>>;
    constexpr int kHeld = Tile::kHeld, kLane = Tile::kLane, kOne = sizeof(T);
    PB_SHARED_ARRAY(float, slots, 64);
    const T* weight = (const T*)p.weight;
    const i64 row = (i64)blockIdx.x * kRows + Tile::group();
    const T* x = (const T*)p.x + row * p.x_stride;
    Q* out = (Q*)p.out + row * p.out_stride;
    T* residual = nullptr;
    if constexpr (kAdd) residual = (T*)p.residual + row * p.residual_stride;
    // Threads without a row touch no memory but take part in the reduction.
    const Tile tile(x, row < p.rows ? p.hidden : 0);

    words<16> a[kHeld], b[kHeld], w[kHeld];
    tile.load(x, a);
    if constexpr (kAdd) {
#pragma unroll
        for (int i = 0; i < kHeld; i++)
            b[i] = tile.column(i) < tile.end ? ld_any<16, kPeel>(residual + tile.column(i)) : words<16>{};
    }
    if constexpr (Tile::kWeightFirst) tile.load_weight(weight, w);
    float s = 1.f;
    if constexpr (!kPerRow) s = p.scale ? *(const float*)p.scale : p.scale_value;
    const float inv_hidden = 1.f / (float)p.hidden;  // here: while the loads are under way

    float f[kHeld][kLane], sum = 0.f, top = 0.f;
    // Products of one access with its weights; both reductions take part of them.
    auto take = [&](const float(&v)[kLane], const words<16>& g, float(&y)[kLane]) {
        unpack<T, 16>(g, y);
        sum = sum_of_squares(v, sum);
#pragma unroll
        for (int j = 0; j < kLane; j++) {
            y[j] = v[j] * (y[j] + p.weight_bias);
            if constexpr (kPerRow) top = max_f(top, fabsf(y[j]));
        }
    };
    auto add = [&](const words<16>& l, const words<16>& r, float(&v)[kLane]) {
        unpack<T, 16>(l, v);
        if constexpr (kAdd) {
            float u[kLane];
            unpack<T, 16>(r, u);
#pragma unroll
            for (int j = 0; j < kLane; j++) v[j] += u[j];
        }
    };
    float v[kLane];
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = tile.column(i);
        if constexpr (!Tile::kWeightFirst) w[i] = c < tile.end ? Tile::weight(weight + c) : words<16>{};
        add(a[i], b[i], v);
        if constexpr (kAdd)
            if (c < tile.end) st_any<16, kPeel>(residual + c, pack<T, 16>(v));
        take(v, w[i], f[i]);
    }
    // Columns beyond the registers are read again in the second pass, where their sums are stored.
    auto again = [&](int c, float(&y)[kLane], bool store) {
        words<16> r = {};
        if constexpr (kAdd) r = ld_any<16, kPeel>(residual + c);
        add(ld<16>(x + c), r, v);
        if constexpr (kAdd)
            if (store) st_any<16, kPeel>(residual + c, pack<T, 16>(v));
        take(v, Tile::weight(weight + c), y);
    };
    float y[kLane];
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) again(c, y, false);
    float edge[1] = {};
    if (kPeel && tile.edge < tile.n) {
        unpack<T, kOne>(ld<kOne>(x + tile.edge), edge);
        if constexpr (kAdd) {
            float u[1];
            unpack<T, kOne>(ld<kOne>(residual + tile.edge), u);
            edge[0] += u[0];
            st<kOne>(residual + tile.edge, pack<T, kOne>(edge));
        }
        float g[1];
        unpack<T, kOne>(ld_nc<kOne>(weight + tile.edge), g);
        sum = sum_of_squares(edge, sum);
        edge[0] *= g[0] + p.weight_bias;
        top = max_f(top, fabsf(edge[0]));
    }

    if constexpr (kPerRow) reduce_two<Tile, true>(sum, top, slots);
    else sum = Tile::sum(sum, slots);
    const float r = rsqrt_fast(sum * inv_hidden + p.eps);
    if constexpr (kPerRow) {
        s = group_scale(top * r, p.floor, kLargest<Q>);
        if (Tile::thread() == 0 && tile.n > 0) ((float*)p.scale)[row * p.scale_stride] = s;
    }
    const float inv = reciprocal(s);

    auto store = [&](int c, const float(&z)[kLane]) {
        float q[kLane];
#pragma unroll
        for (int j = 0; j < kLane; j++) q[j] = z[j] * r * inv;
        st_any<kLane, kPeel>(out + c, pack<Q, kLane>(q));
    };
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = tile.column(i);
        if (c >= tile.end) break;
        store(c, f[i]);
    }
#pragma unroll 1
    for (int c = tile.column(kHeld); c < tile.end; c += tile.step()) {
        again(c, y, true);
        store(c, y);
    }
    if (kPeel && tile.edge < tile.n) {
        edge[0] = edge[0] * r * inv;
        st<1>(out + tile.edge, pack<Q, 1>(edge));
    }
}

}  // namespace pb
