// Keys that order numbers as integers, and the greatest of those that the lanes of a warp hold.
#pragma once
#include "parbake/scan.cuh"

namespace pb {

// Greater keys for greater numbers; -0 equals 0, NaN counts as -inf. No number has the key 0.
PB_FN u32 key_of(float v) {
    const u32 bits = bits_of<u32>(v != v ? -kInf : v + 0.f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
PB_FN float value_of(u32 key) {
    return bits_of<float>(key >> 31 ? key & 0x7fffffffu : ~key);
}

// One instruction from sm_80 on.
PB_FN u32 warp_greatest(u32 v PB_AT) {
#if PB_DEVICE && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(kFullMask, v);
#else
    return warp_reduce<max_op, u32>(v, max_op{} PB_PASS_AT);
#endif
}
PB_FN u32 warp_least(u32 v PB_AT) {
#if PB_DEVICE && __CUDA_ARCH__ >= 800
    return __reduce_min_sync(kFullMask, v);
#else
    return warp_reduce<min_op, u32>(v, min_op{} PB_PASS_AT);
#endif
}

// What a lane holds of the row of a warp: place i is element 32 i + lane. Up to kEach in registers; 0: any number, in
// shared memory.
template <int kEach> struct Held {
    u32 keys[kEach];
    template <class F> PB_FN void each(F f) {
#pragma unroll
        for (int i = 0; i < kEach; i++) f(32 * i + (int)lane_id(), keys[i]);
    }
};
template <> struct Held<0> {
    u32* keys;
    int count;
    template <class F> PB_FN void each(F f) {
#pragma unroll 1
        for (int e = (int)lane_id(); e < count; e += 32) f(e, keys[e]);
    }
};

// The greatest of the warp, of equal ones the first; its key is 0 if there is none.
struct Best {
    u32 key, element;
};
template <int kEach> PB_FN Best greatest(Held<kEach>& held) {
    u32 key = 0, element = 0;
    held.each([&](int e, u32 k) {
        if (k > key) {
            key = k;
            element = (u32)e;
        }
    });
    const u32 top = warp_greatest(key);
    return {top, warp_least(key == top ? element : 0xffffffffu)};
}

}  // namespace pb
