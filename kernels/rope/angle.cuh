// Sine and cosine of f32 angles of any size, and the index types of positions.
#pragma once
#include "parbake/vec.cuh"

namespace pb {

// A product that the compiler does not fuse into an addition: others must get the same bits.
PB_FN float mul_rn(float a, float b) {
#if PB_DEVICE
    float r;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a * b;
#endif
}

// An element of an array of i32 or i64.
template <class Index> PB_FN Index ld_index(const void* array, i64 i) {
    const words<(int)sizeof(Index)> v = ld_nc<(int)sizeof(Index)>((const Index*)array + i);
    if constexpr (sizeof(Index) == 8) return (Index)((u64)v.w[1] << 32 | v.w[0]);
    else return (Index)v.w[0];
}

// An angle as quarter turns: the nearest whole number of them, modulo 4, and the rest, hardly more than 1/2.
struct Quarters {
    u32 whole;
    float rest;
};

// Up to 2^20 quarter turns the rest is at most 0.53.
inline constexpr float kNearAngle = 1647099.25f;

PB_FN Quarters near_quarters(float angle) {
    constexpr float kMagic = 12582912.f;                            // 1.5 · 2^23: its unit is 1
    constexpr float kHigh = 0x1.45f306p-1f, kLow = 0x1.b9391p-26f;  // 2/π
    const float turns = mul_rn(angle, kHigh);
    const float low = fmaf(angle, kLow, fmaf(angle, kHigh, -turns));
    const float sum = turns + low + kMagic;
    return {bits_of<u32>(sum), turns - (sum - kMagic) + low};
}

// Exact to 2^-33 turns for angles from 2^20 to 2^52: the product of the mantissa with the bits of 1/(16π) from where
// whole turns end.
PB_FN Quarters far_quarters(float angle) {
    constexpr u64 kHigh = 0x0517cc1b727220a9u, kLow = 0x727220a94fe13abeu;
    const u32 bits = bits_of<u32>(angle);
    const u32 mantissa = (bits & 0x7fffffu) | 0x800000u, shift = ((bits >> 23 & 0xffu) - 147u) & 31u;
    const u32 high = (u32)(kHigh << shift >> 32), low = (u32)(kLow << shift >> 32);
    const u32 turn = mantissa * high + (u32)((u64)mantissa * low >> 32);
    const u32 whole = (turn + 0x20000000u) >> 30;
    const float rest = (float)(i32)(turn - (whole << 30)) * 0x1p-30f;
    return bits >> 31 ? Quarters{0u - whole, -rest} : Quarters{whole, rest};
}

// Minimax polynomials up to 0.534, 5e-9 off: less than what f32 adds.
PB_FN void sin_cos(const Quarters& q, float& sine, float& cosine) {
    const float x = q.rest, z = x * x;
    float s = fmaf(z, -4.5911383e-3f, 7.9676538e-2f);
    s = fmaf(z, s, -0.64596318f);
    s = x * fmaf(z, s, 1.57079632f);
    float c = fmaf(z, 9.0500458e-4f, -2.0860948e-2f);
    c = fmaf(z, c, 0.25366936f);
    c = fmaf(z, c, -1.23370055f);
    c = fmaf(z, c, 1.f);
    const bool odd = q.whole & 1u;
    const u32 minus_sine = (q.whole & 2u) << 30, minus_cosine = ((q.whole + 1u) & 2u) << 30;
    sine = bits_of<float>(bits_of<u32>(odd ? c : s) ^ minus_sine);
    cosine = bits_of<float>(bits_of<u32>(odd ? s : c) ^ minus_cosine);
}

// Of several angles, none larger than the first.
template <int kCount> PB_FN void sin_cos(const float (&angle)[kCount], float (&sine)[kCount], float (&cosine)[kCount]) {
    Quarters q[kCount];
#pragma unroll
    for (int i = 0; i < kCount; i++) q[i] = near_quarters(angle[i]);
    if (!(fabsf(angle[0]) < kNearAngle)) {
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            if (!(fabsf(angle[i]) < kNearAngle)) q[i] = far_quarters(angle[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < kCount; i++) sin_cos(q[i], sine[i], cosine[i]);
}

}  // namespace pb
