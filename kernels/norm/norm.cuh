// What the row norms share: how a block is laid over rows, and the reduction of a row.
#pragma once
#include "parbake/block.cuh"
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

// A block of kBlock threads takes kRows rows at a time, kThreads threads to a row. A thread moves kVec bytes at once,
// in steps of the whole group: access i of thread t begins at column (i * kThreads + t) * kLane.
template <class T, int kBlock, int kRows, int kVec> struct RowTile {
    static constexpr int kThreads = kBlock / kRows;
    static constexpr int kLane = kLanes<T, kVec>;
    static constexpr int kStep = kThreads * kLane;
    // Accesses whose values stay in registers between the two passes: 64 bytes a thread in full vectors, and no more
    // than 16 accesses. What lies beyond is read twice, the second time from a cache.
    static constexpr int kHeld = kVec == 16 ? (kThreads == 1024 ? 2 : 4) : 8;
    static_assert(kBlock % kRows == 0 && (kThreads & (kThreads - 1)) == 0, "a power of two of threads to a row");
    static_assert(kThreads <= 32 || kRows == 1, "several rows in a block: a row within a warp");

    static PB_FN int group() { return (int)threadIdx.x / kThreads; }
    static PB_FN int column(int i) { return (i * kThreads + (int)threadIdx.x % kThreads) * kLane; }

    // Sum over the threads of a row. `slots` is two arrays of 32, used in turn; `turn` counts the calls.
    static PB_FN float sum(float v, float* slots, u32 turn PB_AT) {
        if constexpr (kThreads <= 32) return warp_sum<kThreads>(v PB_PASS_AT);
        else return block_sum<kThreads>(v, slots + (turn & 1) * 32 PB_PASS_AT);
    }
};

template <int kLane> PB_FN float sum_of_squares(const float (&v)[kLane], float sum) {
#pragma unroll
    for (int j = 0; j < kLane; j++) sum += v[j] * v[j];
    return sum;
}

// v * r * (weight + bias), rounded to T.
template <class T, int kVec, int kLane>
PB_FN words<kVec> scaled(const float (&v)[kLane], float r, const words<kVec>& weight, float bias) {
    float w[kLane], y[kLane];
    unpack<T, kVec>(weight, w);
#pragma unroll
    for (int j = 0; j < kLane; j++) y[j] = v[j] * r * (w[j] + bias);
    return pack<T, kVec>(y);
}

}  // namespace pb
