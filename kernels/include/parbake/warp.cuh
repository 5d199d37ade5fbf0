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

// kCount reductions over each aligned group of kLanes lanes, shared out: each lane ends with those of kOwn values, so
// that steps and what follows from a result are not done kCount times.
template <int kLanes, int kCount> struct Shares {
    static constexpr int kParts = kLanes < kCount ? kLanes : kCount, kOwn = kCount / kParts;
    static_assert(kCount % kParts == 0 && (kParts & (kParts - 1)) == 0, "powers of two");

    // The first of the lane's own values, and whether it is the first of the lanes that have them.
    static PB_FN int first() { return (int)(lane_id() % kLanes) / (kLanes / kParts) * kOwn; }
    static PB_FN bool leads() { return lane_id() % (kLanes / kParts) == 0; }
    template <class Op> static PB_FN void reduce(float (&v)[kCount] PB_AT) {
#pragma unroll
        for (int m = kLanes / 2, n = kCount; m; m >>= 1) {
            if (n > 1) n /= 2;
            const bool upper = kParts > 1 && lane_id() & (u32)m;
#pragma unroll
            for (int i = 0; i < kCount / 2 + (kCount == 1); i++) {
                if (i >= n) continue;
                // While there are several, half of them go to the other lane.
                if (m * 2 > kLanes / kParts) {
                    const float keep = upper ? v[i + n] : v[i], give = upper ? v[i] : v[i + n];
                    v[i] = Op::of(keep, shfl_xor(give, m, kFullMask PB_PASS_AT));
                } else {
                    v[i] = Op::of(v[i], shfl_xor(v[i], m, kFullMask PB_PASS_AT));
                }
            }
        }
    }
    // Value j, which is known at compile time, of what each lane made of its own ones.
    static PB_FN float get(const float (&own)[kOwn], int j PB_AT) {
        if constexpr (kParts == 1) return own[j];
        const u32 part = (u32)(j / kOwn * (kLanes / kParts));
        return shfl(own[j % kOwn], (int)((lane_id() & ~(u32)(kLanes - 1)) | part), kFullMask PB_PASS_AT);
    }
};

}  // namespace pb
