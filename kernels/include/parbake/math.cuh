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

}  // namespace pb
