// The scale of a group of values that are quantised together: the one contract of every quantiser.
//   amax  the largest magnitude of the group. NaN does not count, an infinity counts as the largest finite f32
//   s     max(amax, floor) / largest, rounded to f32; as UE8M0 the smallest power of two, at least 2^-127, with
//         max(amax, floor) <= s * largest
//   q     x * (1 / s), the reciprocal and the product rounded to f32, then to the type as fp8.cuh says
// So a group of zeros gives zeros and a finite scale, NaN marks its own element only, and an infinity saturates.
#pragma once
#include "parbake/fp8.cuh"
#include "parbake/math.cuh"

namespace pb {

inline constexpr float kLargestF32 = 0x1.fffffep127f;

// v / by where `by` is known to the compiler, without its general division: correctly rounded for 1e-30 <= v if `by`
// is one of the largest values of the 8-bit types.
PB_FN float divided(float v, float by) {
    const float inverse = 1.f / by, q = v * inverse;
    return fmaf(fmaf(-by, q, v), inverse, q);
}
// `floor` is at least 1e-30, so that the scale and its reciprocal are normal numbers.
PB_FN float group_scale(float amax, float floor, float largest) {
    return divided(fminf(fmaxf(amax, floor), kLargestF32), largest);
}
PB_FN float reciprocal(float v) {
    return 1.f / v;
}

// The same as a power of two, by comparing exponents and mantissas.
PB_FN ue8m0 group_exponent(float amax, float largest) {
    const u32 a = bits_of<u32>(fminf(amax, kLargestF32)), l = bits_of<u32>(largest);
    const i32 e = (i32)(a >> 23) - (i32)(l >> 23) + 127 + ((a & 0x7fffffu) > (l & 0x7fffffu));
    return {(u8)(e > 0 ? e : 0)};
}
// 1 / to_f32(v) without a division. Exact: 2^-127 is a subnormal of f32.
PB_FN float reciprocal(ue8m0 v) {
    return bits_of<float>(v.bits == 255 ? 0x7fffffffu : v.bits == 254 ? 0x00400000u : (u32)(254 - v.bits) << 23);
}

}  // namespace pb
