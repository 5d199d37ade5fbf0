// Warp collectives. Every lane of the mask comes to the same call. They exchange registers and order no memory:
// __syncwarp() does.
#pragma once
#include "parbake/types.cuh"

namespace pb {

inline constexpr u32 kFullMask = 0xffffffffu;

// Blocks are one-dimensional.
PB_FN u32 lane_id() {
    return threadIdx.x & 31u;
}
PB_FN u32 warp_id() {
    return threadIdx.x >> 5;
}

template <class T> PB_FN T shfl_xor(T v, int m, u32 mask = kFullMask PB_AT) {
    static_assert(sizeof(T) == 4, "one word");
#if PB_DEVICE
    return __shfl_xor_sync(mask, v, m);
#else
    return bits_of<T>(host::shfl(host::kShflXor, bits_of<u32>(v), m, mask PB_PASS_AT));
#endif
}
template <class T> PB_FN T shfl(T v, int src, u32 mask = kFullMask PB_AT) {
    static_assert(sizeof(T) == 4, "one word");
#if PB_DEVICE
    return __shfl_sync(mask, v, src);
#else
    return bits_of<T>(host::shfl(host::kShflIdx, bits_of<u32>(v), src, mask PB_PASS_AT));
#endif
}
template <class T> PB_FN T shfl_up(T v, int d, u32 mask = kFullMask PB_AT) {
    static_assert(sizeof(T) == 4, "one word");
#if PB_DEVICE
    return __shfl_up_sync(mask, v, d);
#else
    return bits_of<T>(host::shfl(host::kShflUp, bits_of<u32>(v), d, mask PB_PASS_AT));
#endif
}
template <class T> PB_FN T shfl_down(T v, int d, u32 mask = kFullMask PB_AT) {
    static_assert(sizeof(T) == 4, "one word");
#if PB_DEVICE
    return __shfl_down_sync(mask, v, d);
#else
    return bits_of<T>(host::shfl(host::kShflDown, bits_of<u32>(v), d, mask PB_PASS_AT));
#endif
}
PB_FN u32 warp_ballot(bool b, u32 mask = kFullMask PB_AT) {
#if PB_DEVICE
    return __ballot_sync(mask, b);
#else
    return host::ballot(b, mask PB_PASS_AT);
#endif
}

// What a reduction does with two values, and what it begins with.
struct Sum {
    static constexpr float kNone = 0.f;
    static PB_FN float of(float a, float b) { return a + b; }
};
// NaN counts only if every value is one.
struct Max {
    static constexpr float kNone = -kInf;
    static PB_FN float of(float a, float b) { return fmaxf(a, b); }
};

// Reduction over each aligned group of kLanes lanes; every lane of the group gets it. The whole warp calls.
template <class Op, int kLanes> PB_FN float warp_reduce(float v PB_AT) {
    static_assert(kLanes >= 1 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0, "a power of two within a warp");
#pragma unroll
    for (int m = kLanes / 2; m; m >>= 1) v = Op::of(v, shfl_xor(v, m, kFullMask PB_PASS_AT));
    return v;
}
template <int kLanes = 32> PB_FN float warp_sum(float v PB_AT) {
    return warp_reduce<Sum, kLanes>(v PB_PASS_AT);
}
template <int kLanes = 32> PB_FN float warp_max(float v PB_AT) {
    return warp_reduce<Max, kLanes>(v PB_PASS_AT);
}

}  // namespace pb
