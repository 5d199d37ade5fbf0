// What the quantisers share: how a flat index is laid over rows, access to sixteen bytes of a row, the layouts of block
// scales, and the loop over groups of values with one scale.
#pragma once
#include "parbake/scale.cuh"
#include "parbake/vec.cuh"
#include "parbake/warp.cuh"

namespace pb {

inline constexpr int kQuantBlock = 256;

// kVec == 16: rows begin at a multiple of 16 bytes and hold whole vectors. kVec == 1: one access per element, anywhere.
// Columns beyond n are zero and are not stored.
template <class T, int kVec> PB_FN words<16> load_lanes(const T* row, int c, int n) {
    words<16> r{};
    if constexpr (kVec == 16) {
        if (c < n) r = ld_once<16>(row + c);
    } else {
#pragma unroll
        for (int i = 0; i < 16 / (int)sizeof(T); i++)
            if (c + i < n) {
                const u32 w = ld_once<sizeof(T)>(row + c + i).w[0];
                if constexpr (sizeof(T) == 4) r.w[i] = w;
                else r.w[i / 2] |= w << i % 2 * 16;
            }
    }
    return r;
}
template <int kCount, int kVec> PB_FN words<kCount> load_bytes(const u8* row, int c, int n) {
    words<kCount> r{};
    if constexpr (kVec == 16) {
        if (c < n) r = ld_once<kCount>(row + c);
    } else {
#pragma unroll
        for (int i = 0; i < kCount; i++)
            if (c + i < n) r.w[i / 4] |= ld_once<1>(row + c + i).w[0] << i % 4 * 8;
    }
    return r;
}
template <int kCount, int kVec> PB_FN void store_bytes(u8* row, int c, int n, const words<kCount>& v) {
    if constexpr (kVec == 16) {
        if (c < n) st_once<kCount>(row + c, v);
    } else {
#pragma unroll
        for (int i = 0; i < kCount; i++)
            if (c + i < n) st<1>(row + c + i, words<1>{{v.w[i / 4] >> i % 4 * 8 & 255u}});
    }
}

template <int kCount> PB_FN float magnitude(const float (&v)[kCount], float amax = 0.f) {
#pragma unroll
    for (int j = 0; j < kCount; j++) amax = fmaxf(amax, fabsf(v[j]));
    return amax;
}

// How the threads of a grid are laid over rows: what a launcher chose. A block takes `block_rows` rows side by side,
// with `row_threads` threads each. The vectors that a thread holds lie across the row, and `chunks` blocks share a long
// row; or, where rows are short (`down`), they lie in rows below each other.
struct Deal {
    i64 row;     // of the thread's first vector
    int vector;  // and its place in that row
    int row_step, vector_step;
    bool idle;

    template <int kHeld, class P> static PB_FN Deal of(const P& p, u32 block) {
        const int r = (int)(threadIdx.x * (u32)((65535 + p.row_threads) / p.row_threads) >> 16);  // / row_threads
        u32 chunk = 0;
        if (p.chunks > 1) chunk = block % (u32)p.chunks, block /= (u32)p.chunks;
        return {(i64)block * (p.down ? p.block_rows * kHeld : p.block_rows) + r,
                (int)(chunk * (u32)(p.row_threads * kHeld) + threadIdx.x) - r * p.row_threads,
                p.down ? p.block_rows : 0, p.down ? 0 : p.row_threads, r >= p.block_rows};
    }
};

// 16 bytes.
template <class T, int kVec> PB_FN void store_lanes(T* row, int c, int n, const words<16>& v) {
    if constexpr (kVec == 16) {
        if (c < n) st<16>(row + c, v);
    } else {
#pragma unroll
        for (int i = 0; i < 16 / (int)sizeof(T); i++)
            if (c + i < n) {
                if constexpr (sizeof(T) == 4) st<4>(row + c + i, words<4>{{v.w[i]}});
                else st<2>(row + c + i, words<2>{{v.w[i / 2] >> i % 2 * 16 & 0xffffu}});
            }
    }
}

// Layouts of block scales, numbered as peers do. `columns` is a multiple of 4 in the tiled ones.
enum ScaleLayout { kScales128x4 = 0, kScales8x4 = 1, kScalesLinear = 2 };
PB_FN i64 scale_offset(int layout, i64 row, int column, int columns, i64 row_stride) {
    if (layout == kScalesLinear) return row * row_stride + column;
    // Unsigned, for divisions that are shifts.
    const u64 m = (u64)row;
    const u32 r = (u32)row, k = (u32)column, tiles = (u32)columns / 4;
    if (layout == kScales128x4)
        return (i64)((m / 128 * tiles + k / 4) * 512 + (r % 32 * 16 + r % 128 / 32 * 4 + k % 4));
    return (i64)((m / 8 * tiles + k / 4) * 32 + (r % 8 * 4 + k % 4));
}

// How many of a thread's vectors are in flight: all, or one after the other where elements are accessed one by one.
template <int kHeld, int kVec> inline constexpr int kFlight = kVec == 16 ? kHeld : 1;

// Groups of kGroup values with one scale each. `rows` and `groups` count what gets a scale: where a layout is padded
// they are more than x has, and what x has not is zero. A group's threads are neighbours in a warp.
template <class T, int kGroup, int kHeld, int kVec, class P, class Quantizer>
PB_FN void quantize_groups(const P& p, i64 rows, int groups, const Quantizer& quantizer) {
    constexpr int kLane = kLanes<T, 16>, kSpan = kGroup / kLane, kBytes = Quantizer::template kBytes<kLane>;
    using Part = Shares<kSpan, kFlight<kHeld, kVec>>;
    const Deal deal = Deal::of<kHeld>(p, blockIdx.x);
    const T* x = (const T*)p.x + deal.row * p.x_stride;
    u8* out = (u8*)p.out + deal.row * p.out_stride;
    const i64 x_step = deal.row_step * p.x_stride, out_step = deal.row_step * p.out_stride;
#pragma unroll 1
    for (int first = 0; first < kHeld; first += kFlight<kHeld, kVec>) {
        words<16> held[kFlight<kHeld, kVec>];
#pragma unroll
        for (int j = 0; j < kFlight<kHeld, kVec>; j++) {
            const int i = first + j;
            const bool valid = deal.row + i * deal.row_step < p.rows && !deal.idle;
            held[j] = load_lanes<T, kVec>(x + i * x_step, (deal.vector + i * deal.vector_step) * kLane,
                                          valid ? p.hidden : 0);
        }
        // A lane finds the scales of some of the vectors.
        float top[kFlight<kHeld, kVec>], v[kLane], factor[Part::kOwn];
#pragma unroll
        for (int j = 0; j < kFlight<kHeld, kVec>; j++) {
            unpack<T, 16>(held[j], v);
            top[j] = magnitude(v);
        }
        Part::template reduce<Max>(top);
#pragma unroll
        for (int k = 0; k < Part::kOwn; k++) {
            const int i = first + Part::first() + k;
            const i64 row = deal.row + i * deal.row_step;
            const u32 group = (u32)(deal.vector + i * deal.vector_step) / kSpan;
            const auto scale = quantizer.scale(top[k]);
            factor[k] = quantizer.factor(scale);
            if (Part::leads() && row < rows && group < (u32)groups && !deal.idle)
                quantizer.store(scale, row, (int)group);
        }
#pragma unroll
        for (int j = 0; j < kFlight<kHeld, kVec>; j++) {
            const int i = first + j;
            const bool valid = deal.row + i * deal.row_step < p.rows && !deal.idle;
            const float by = Part::get(factor, j);
            unpack<T, 16>(held[j], v);
#pragma unroll
            for (int k = 0; k < kLane; k++) v[k] *= by;
            store_bytes<kBytes, kVec>(out + i * out_step, (deal.vector + i * deal.vector_step) * kBytes,
                                      valid ? Quantizer::bytes(p.hidden) : 0, quantizer.pack(v));
        }
    }
}

// The reverse: kBits for each value, which `unpack` widens to f32; `factor` is what a value of a row and block of
// kGroup columns is multiplied by.
template <class T, int kBits, int kGroup, int kHeld, int kVec, class P, class Dequantizer>
PB_FN void dequantize_groups(const P& p, const Dequantizer& dequantizer) {
    constexpr int kLane = kLanes<T, 16>, kBytes = kLane * kBits / 8;
    const Deal deal = Deal::of<kHeld>(p, blockIdx.x);
    const u8* x = (const u8*)p.x + deal.row * p.x_stride;
    T* out = (T*)p.out + deal.row * p.out_stride;
    const i64 x_step = deal.row_step * p.x_stride, out_step = deal.row_step * p.out_stride;
#pragma unroll 1
    for (int first = 0; first < kHeld; first += kFlight<kHeld, kVec>) {
        words<kBytes> held[kFlight<kHeld, kVec>];
        float factor[kFlight<kHeld, kVec>];
#pragma unroll
        for (int j = 0; j < kFlight<kHeld, kVec>; j++) {
            const int i = first + j, vector = deal.vector + i * deal.vector_step;
            const i64 row = deal.row + i * deal.row_step;
            const bool valid = row < p.rows && !deal.idle && vector * kLane < p.hidden;
            held[j] = load_bytes<kBytes, kVec>(x + i * x_step, vector * kBytes, valid ? p.hidden * kBits / 8 : 0);
            factor[j] = valid ? dequantizer.factor(row, vector * kLane / kGroup) : 0.f;
        }
#pragma unroll
        for (int j = 0; j < kFlight<kHeld, kVec>; j++) {
            const int i = first + j;
            float v[kLane];
            dequantizer.unpack(held[j], v);
#pragma unroll
            for (int k = 0; k < kLane; k++) v[k] = dequantizer.value(v[k], factor[j]);
            store_lanes<T, kVec>(out + i * out_step, (deal.vector + i * deal.vector_step) * kLane,
                                 deal.row + i * deal.row_step < p.rows && !deal.idle ? p.hidden : 0, pack<T, 16>(v));
        }
    }
}

}  // namespace pb
