// Scalar arithmetic. `_fast` names an approximation of the hardware: about one unit in the last place of f32.
#pragma once
#include "parbake/types.cuh"

namespace pb {

inline constexpr float kLog2E = 1.44269504088896341f;

template <class T> PB_FN T min_i(T a, T b) {
    return a < b ? a : b;
}
PB_FN float max_f(float a, float b) {
    return fmaxf(a, b);
}
PB_FN float exp2_fast(float v) {
#if PB_DEVICE
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
#else
    return exp2f(v);
#endif
}
// Of normal numbers; infinity gives 0.
PB_FN float rcp_fast(float v) {
#if PB_DEVICE
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
#else
    return 1.0f / v;
#endif
}
// Not flushed to zero: the mean square of tiny rows may be subnormal.
PB_FN float rsqrt_fast(float v) {
#if PB_DEVICE
    float r;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
#else
    return 1.0f / sqrtf(v);
#endif
}

// n / d for n < 2^31, by what the launcher found for d: magic = floor(2^(31 + l) / d) + 1, shift = 31 + l, where l is the
// least number with 2^l >= d. A division by a number that only the launch knows costs ten times that.
PB_FN u32 quotient(u32 n, u32 magic, u32 shift) {
    return (u32)((u64)n * magic >> shift);
}

}  // namespace pb
