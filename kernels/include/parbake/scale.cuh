// The scale of a group of values that are quantised together: the one contract of every quantiser.
//   amax  the largest magnitude of the group. NaN does not count, an infinity counts as the largest finite f32
//   s     max(amax, floor) / largest, in f32, correctly rounded; with UE8M0 the smallest power of two not below that
//   q     x * (1 / s), the reciprocal and the product rounded to f32, then to the type as fp8.cuh says
// So a group of zeros gives zeros and a finite scale, NaN marks its own element only, and an infinity saturates.
#pragma once
#include "parbake/fp8.cuh"
#include "parbake/math.cuh"

namespace pb {

inline constexpr float kLargestF32 = 0x1.fffffep127f;

// `floor` is positive, so that the scale and its reciprocal are normal numbers: at least 1e-30.
PB_FN float group_scale(float amax, float floor, float largest) {
    return fminf(fmaxf(amax, floor), kLargestF32) / largest;
}
PB_FN float reciprocal(float v) {
    return 1.f / v;
}
// 1 / to_f32(v) without a division. Exact: 2^-127 is a subnormal of f32.
PB_FN float reciprocal(ue8m0 v) {
    return bits_of<float>(v.bits == 255 ? 0x7fffffffu : v.bits == 254 ? 0x00400000u : (u32)(254 - v.bits) << 23);
}

}  // namespace pb
