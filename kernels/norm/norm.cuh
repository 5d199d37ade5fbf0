// What the row norms share: how a block is laid over rows, the reduction of a row, and the scaling of its values.
#pragma once
#include "parbake/block.cuh"
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

// For __launch_bounds__: from sm_100 on, one block of a multiprocessor is enough. Left to itself, CUDA 12.9 spills there to
// make room for more. Elsewhere the compiler chooses.
#if PB_DEVICE && __CUDA_ARCH__ >= 1000
#define PB_LEAST_BLOCKS , 1
#else
#define PB_LEAST_BLOCKS
#endif

namespace pb {

// kRows == 1: the block takes one row; it has as many threads as the launcher likes, at most kBlock.
// kRows > 1: kBlock threads take kRows rows, so that kBlock / kRows threads of one warp share a row.
// A thread moves kVec bytes at once; of 16 bytes it holds kMost. kPeel: rows may begin at any element. Vectors then cover the aligned part of a
// row, and the columns outside it, fewer than two vectors in all, go one to a thread.
template <class T, int kBlock, int kRows, int kVec, int kPeel, int kMost = 4> struct RowTile {
    static constexpr int kThreads = kBlock / kRows;
    static constexpr bool kShared = kRows > 1;  // rows share the block
    static constexpr int kLane = kLanes<T, kVec>;
    // Accesses of a thread whose values stay in registers between the two passes over a row: 64 bytes at full width,
    // and as many in flight. What lies beyond is read twice, the second time from a cache.
    static constexpr int kHeld = kVec == 16 ? kMost : 6;
    // Weights come with the row where registers last for both, else only after the reduction.
    static constexpr bool kWeightFirst = !kPeel && kBlock < 1024;
    static_assert(kRows == 1 || (kThreads <= 32 && (kThreads & (kThreads - 1)) == 0), "rows that share a warp");
    static_assert(!kPeel || kThreads >= 2 * kLane - 2, "a thread for every column outside the vectors");

    static PB_FN int group() { return kRows == 1 ? 0 : (int)threadIdx.x / kThreads; }
    static PB_FN int thread() { return kRows == 1 ? (int)threadIdx.x : (int)threadIdx.x % kThreads; }
    static PB_FN int threads() { return kRows == 1 ? (int)blockDim.x : kThreads; }

    int n;     // columns; 0 for threads without a row
    int lead;  // vectors cover columns lead .. end
    int end;
    int edge;  // this thread's column outside them, if less than n

    PB_FN RowTile(const T* row, int columns) : n(columns), lead(0), end(columns), edge(columns) {
        if constexpr (kPeel) {
            lead = min_i(n, (int)(-(i64)row & (kVec - 1)) / (int)sizeof(T));
            end = lead + (n - lead) / kLane * kLane;
            edge = thread() < lead ? thread() : end + thread() - lead;
        }
    }
    PB_FN int column(int i) const { return lead + (i * threads() + thread()) * kLane; }
    PB_FN int step() const { return threads() * kLane; }

    PB_FN void load_once(const T* row, words<kVec> (&v)[kHeld]) const {
#pragma unroll
        for (int i = 0; i < kHeld; i++) v[i] = column(i) < end ? ld_once<kVec>(row + column(i)) : words<kVec>{};
    }
    PB_FN void load(const T* row, words<kVec> (&v)[kHeld]) const {
#pragma unroll
        for (int i = 0; i < kHeld; i++) v[i] = column(i) < end ? ld<kVec>(row + column(i)) : words<kVec>{};
    }
    // The weights have an alignment of their own.
    static PB_FN words<kVec> weight(const T* ptr) {
        if constexpr (kPeel) return gather_nc<kVec>(ptr);
        else return ld_nc<kVec>(ptr);
    }
    PB_FN void load_weight(const T* w, words<kVec> (&v)[kHeld]) const {
#pragma unroll
        for (int i = 0; i < kHeld; i++) v[i] = column(i) < end ? weight(w + column(i)) : words<kVec>{};
    }
    // Sum over the threads of a row.
    static PB_FN float sum(float v, float* slots) {
        if constexpr (kRows > 1) return warp_sum<kThreads>(v);
        else return block_sum(v, slots);
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
