// Inclusive scans and reductions in a fixed order: the same values give the same bits, whatever the schedule.
#pragma once
#include "parbake/warp.cuh"

namespace pb {

struct add_op {
    template <class T> PB_FN T operator()(T a, T b) const { return a + b; }
};
// The greater of two; NaN is greater than everything, so that it is not lost.
struct max_op {
    template <class T> PB_FN T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct min_op {
    template <class T> PB_FN T operator()(T a, T b) const { return b < a ? b : a; }
};

template <class T> PB_FN T shfl_up_wide(T v, int d PB_AT) {
    if constexpr (sizeof(T) == 4) {
        return shfl_up(v, d, kFullMask PB_PASS_AT);
    } else {
        const u64 b = bits_of<u64>(v);
        const u32 lo = shfl_up((u32)b, d, kFullMask PB_PASS_AT);
        return bits_of<T>((u64)shfl_up((u32)(b >> 32), d, kFullMask PB_PASS_AT) << 32 | lo);
    }
}
template <class T> PB_FN T shfl_xor_wide(T v, int m PB_AT) {
    if constexpr (sizeof(T) == 4) {
        return shfl_xor(v, m, kFullMask PB_PASS_AT);
    } else {
        const u64 b = bits_of<u64>(v);
        const u32 lo = shfl_xor((u32)b, m, kFullMask PB_PASS_AT);
        return bits_of<T>((u64)shfl_xor((u32)(b >> 32), m, kFullMask PB_PASS_AT) << 32 | lo);
    }
}
template <class T> PB_FN T shfl_wide(T v, int lane PB_AT) {
    if constexpr (sizeof(T) == 4) {
        return shfl(v, lane, kFullMask PB_PASS_AT);
    } else {
        const u64 b = bits_of<u64>(v);
        const u32 lo = shfl((u32)b, lane, kFullMask PB_PASS_AT);
        return bits_of<T>((u64)shfl((u32)(b >> 32), lane, kFullMask PB_PASS_AT) << 32 | lo);
    }
}

// Over the warp, of 4- or 8-byte values; the operation is commutative. Every lane gets the result.
template <class Op, class T> PB_FN T warp_reduce(T v, Op op PB_AT) {
#pragma unroll sizeof(T) == 8 ? 1 : 5
    for (int m = 16; m; m >>= 1) v = op(v, shfl_xor_wide(v, m PB_PASS_AT));
    return v;
}
// The sum of integers is one instruction from sm_80 on.
PB_FN u32 warp_reduce(u32 v, add_op op PB_AT) {
#if PB_DEVICE && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(kFullMask, v);
#else
    return warp_reduce<add_op, u32>(v, op PB_PASS_AT);
#endif
}
// Lane i gets v of lane 0 op ... op v of lane i.
template <class Op, class T> PB_FN T warp_scan(T v, Op op PB_AT) {
#pragma unroll sizeof(T) == 8 ? 1 : 5
    for (int d = 1; d < 32; d <<= 1) {
        const T other = shfl_up_wide(v, d PB_PASS_AT);
        if (lane_id() >= (u32)d) v = op(other, v);
    }
    return v;
}

// Over the block, which has whole warps. `slots` is shared and holds 32 values; nobody may still be reading it from an
// earlier call. `identity` op v == v.
template <class Op, class T> PB_FN T block_reduce(T v, Op op, T identity, T* slots PB_AT) {
    v = warp_reduce(v, op PB_PASS_AT);
    if (lane_id() == 0) slots[warp_id()] = v;
    __syncthreads();
    return warp_reduce(lane_id() < blockDim.x / 32 ? slots[lane_id()] : identity, op PB_PASS_AT);
}
// Thread i gets v of thread 0 op ... op v of thread i, and every thread the whole in `total`.
template <class Op, class T> PB_FN T block_scan(T v, Op op, T identity, T* slots, T& total PB_AT) {
    v = warp_scan(v, op PB_PASS_AT);
    if (lane_id() == 31) slots[warp_id()] = v;
    __syncthreads();
    const T warps = warp_scan(lane_id() < blockDim.x / 32 ? slots[lane_id()] : identity, op PB_PASS_AT);
    total = shfl_wide(warps, 31 PB_PASS_AT);
    const T before = shfl_wide(warps, (int)(warp_id() ? warp_id() - 1 : 0) PB_PASS_AT);
    return warp_id() ? op(before, v) : v;
}

}  // namespace pb
