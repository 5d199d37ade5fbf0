// What the row norms need beyond norm.cuh: accesses to further operands of a peeled row, whose alignment is their own,
// and two reductions at the price of one.
#pragma once
#include "norm/norm.cuh"
#include "parbake/fp8.cuh"

namespace pb {

// Accesses that a thread holds. CUDA 12.9 needs more registers from sm_100 on: 64 for each of 1024 threads, and it spilled.
#if PB_DEVICE && __CUDA_ARCH__ >= 1000
template <int kBlock> inline constexpr int kMostHeld = kBlock == 1024 ? 3 : 4;
#else
template <int kBlock> inline constexpr int kMostHeld = 4;
#endif

// kBytes at `ptr`, which is aligned to them, or, where kPeel, perhaps only to its elements.
template <int kBytes, bool kPeel, class T> PB_FN words<kBytes> ld_any(const T* ptr) {
    constexpr int kOne = sizeof(T), kShift = 8 * kOne;
    if constexpr (kPeel) {
        if ((u64)ptr % kBytes != 0) {
            words<kBytes> r = {};
#pragma unroll
            for (int i = 0; i < kLanes<T, kBytes>; i++)
                r.w[i * kOne / 4] |= ld<kOne>(ptr + i).w[0] << (kOne < 4 ? i * kShift % 32 : 0);
            return r;
        }
    }
    return ld<kBytes>(ptr);
}
template <int kBytes, bool kPeel, class T> PB_FN void st_any(T* ptr, const words<kBytes>& v) {
    constexpr int kOne = sizeof(T), kShift = 8 * kOne;
    if constexpr (kPeel) {
        if ((u64)ptr % kBytes != 0) {
#pragma unroll
            for (int i = 0; i < kLanes<T, kBytes>; i++)
                st<kOne>(ptr + i, words<kOne>{{v.w[i * kOne / 4] >> (kOne < 4 ? i * kShift % 32 : 0)}});
            return;
        }
    }
    st<kBytes>(ptr, v);
}

// Two reductions over the threads of a row; every thread gets both. `slots` holds 64 floats, and nobody may still be
// reading them. kMax: the second one is the maximum of values that are at least 0.
template <class Tile, bool kMax> PB_FN void reduce_two(float& a, float& b, float* slots) {
    constexpr int kLanes = Tile::kShared ? Tile::kThreads : 32;
    a = warp_sum<kLanes>(a);
    if constexpr (kMax) b = warp_max<kLanes>(b);
    else b = warp_sum<kLanes>(b);
    if constexpr (Tile::kShared) return;
    if (lane_id() == 0) {
        slots[warp_id()] = a;
        slots[32 + warp_id()] = b;
    }
    __syncthreads();
    const bool there = lane_id() < blockDim.x / 32;
    a = warp_sum(there ? slots[lane_id()] : 0.f);
    b = there ? slots[32 + lane_id()] : 0.f;
    if constexpr (kMax) b = warp_max(b);
    else b = warp_sum(b);
}

}  // namespace pb
