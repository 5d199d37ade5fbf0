// Scalar arithmetic. `_fast` names an approximation of the hardware: about one unit in the last place of f32.
#pragma once
#include "parbake/types.cuh"

namespace pb {

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

// n / d without the division, by what the launcher found: magic is 2^31 / d, rounded up, or 0 if n * d may reach 2^31.
PB_FN u32 over(u32 n, u32 d, u32 magic) {
    return magic ? (u32)((u64)n * magic >> 31) : n / d;
}

}  // namespace pb
