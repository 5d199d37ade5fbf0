// The 8-bit floating-point types and their conversions, with the same bits on every target.
// From f32: rounded to nearest even, magnitudes beyond the largest finite value (infinities too) become that value with
// their sign, NaN becomes 0x7f. The instruction needs sm_89 and does exactly this; elsewhere integers do it.
#pragma once
#include "parbake/types.cuh"

namespace pb {

// 1 sign, 4 exponent and 3 mantissa bits, bias 7: no infinity, NaN is 0x7f and 0xff. Largest 448, smallest 2^-9.
struct e4m3 {
    u8 bits;
};
// 1 sign, 5 exponent and 2 mantissa bits, bias 15: the upper half of an f16. Largest 57344, smallest 2^-16.
struct e5m2 {
    u8 bits;
};
// A power of two: the code is an f32 exponent. 0 is 2^-127, 254 is 2^127, 255 is NaN.
struct ue8m0 {
    u8 bits;
};

template <class T> inline constexpr bool is_fp8 = false;
template <> inline constexpr bool is_fp8<e4m3> = true;
template <> inline constexpr bool is_fp8<e5m2> = true;

template <class T> inline constexpr bool is_e5m2 = false;
template <> inline constexpr bool is_e5m2<e5m2> = true;

// The largest finite value.
template <class T> inline constexpr float kLargest = 0.f;
template <> inline constexpr float kLargest<e4m3> = 448.f;
template <> inline constexpr float kLargest<e5m2> = 57344.f;

#if PB_DEVICE && __CUDA_ARCH__ >= 890
#define PB_FP8_CVT 1
#else
#define PB_FP8_CVT 0
#endif

PB_FN float to_f32(e4m3 v) {
#if PB_FP8_CVT
    u32 h;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"((u16)v.bits));
    return to_f32(f16{(u16)h});
#else
    const u32 magnitude = v.bits & 0x7fu;
    if (magnitude == 0x7fu) return bits_of<float>(0x7fffffffu);
    // The fields of an f32 whose exponent is 120 too small; right for subnormals too.
    return bits_of<float>(bits_of<u32>(bits_of<float>(magnitude << 20) * 0x1p120f) | (u32)(v.bits & 0x80u) << 24);
#endif
}
PB_FN float to_f32(e5m2 v) {
    return to_f32(f16{(u16)(v.bits << 8)});
}
PB_FN float to_f32(ue8m0 v) {
    return bits_of<float>(v.bits == 255 ? 0x7fffffffu : v.bits ? (u32)v.bits << 23 : 0x00400000u);
}

// f32 to fp8 without the instruction. kShift: mantissa bits that go; kBias: what the exponents differ by; kLast: the
// code of the largest finite value.
template <int kShift, int kBias, u32 kLast> PB_FN u32 fp8_from_f32(float v) {
    const u32 u = bits_of<u32>(v), a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7f;
    u32 code;
    if (a < (u32)(kBias + 1) << 23) {
        // Below the normal numbers: the sum with a number whose unit is the smallest subnormal rounds to it.
        constexpr u32 kMagic = (u32)(kBias + 1 + kShift) << 23;
        code = bits_of<u32>(bits_of<float>(a) + bits_of<float>(kMagic)) - kMagic;
    } else {
        const u32 r = a - ((u32)kBias << 23);
        code = (r + (1u << (kShift - 1)) - 1u + (r >> kShift & 1u)) >> kShift;
        code = code < kLast ? code : kLast;
    }
    return code | (u >> 24 & 0x80u);
}

// As convert in types.cuh. `pair` fills the low half of a word, `quad` a word, the first value in the lowest byte.
template <> struct convert<e4m3> {
    static PB_FN u32 pair(float lo, float hi) {
#if PB_FP8_CVT
        u16 r;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
        return r;
#else
        return fp8_from_f32<20, 120, 0x7e>(lo) | fp8_from_f32<20, 120, 0x7e>(hi) << 8;
#endif
    }
    static PB_FN u32 quad(float a, float b, float c, float d) { return pair(a, b) | pair(c, d) << 16; }
    static PB_FN e4m3 from(float v) { return {(u8)pair(v, 0.f)}; }
};
template <> struct convert<e5m2> {
    static PB_FN u32 pair(float lo, float hi) {
#if PB_FP8_CVT
        u16 r;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
        return r;
#else
        return fp8_from_f32<21, 112, 0x7b>(lo) | fp8_from_f32<21, 112, 0x7b>(hi) << 8;
#endif
    }
    static PB_FN u32 quad(float a, float b, float c, float d) { return pair(a, b) | pair(c, d) << 16; }
    static PB_FN e5m2 from(float v) { return {(u8)pair(v, 0.f)}; }
};
// The smallest power of two that is not below |v|, at most 2^127 (infinity too); NaN stays NaN.
template <> struct convert<ue8m0> {
    static PB_FN ue8m0 from(float v) {
        const u32 u = bits_of<u32>(v) & 0x7fffffffu;
        const u32 exponent = u >> 23, mantissa = u & 0x7fffffu;
        if (u > 0x7f800000u) return {255};
        if (exponent >= 254) return {254};
        // A subnormal of at most 2^-127 has that as its power.
        return {(u8)(exponent + (mantissa > (exponent ? 0u : 0x400000u)))};
    }
};

// Four values of an 8-bit type as two words of a 16-bit type, exactly; the first two in `lo`.
template <class From, class To> PB_FN void widen(u32 v, u32& lo, u32& hi) {
    if constexpr (is_e5m2<From> && !is_bf16<To>) {
        // The upper half of an f16.
        lo = (v & 0xffu) << 8 | (v & 0xff00u) << 16;
        hi = (v >> 8 & 0xff00u) | (v & 0xff000000u);
#if PB_FP8_CVT
    } else if constexpr (!is_e5m2<From> && !is_bf16<To>) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(lo) : "h"((u16)v));
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(hi) : "h"((u16)(v >> 16)));
    } else if constexpr (!is_e5m2<From>) {
        u32 a, b;
        widen<From, f16>(v, a, b);
        lo = convert<To>::pair(lo_f32<f16>(a), hi_f32<f16>(a));
        hi = convert<To>::pair(lo_f32<f16>(b), hi_f32<f16>(b));
#endif
    } else {
        lo = convert<To>::pair(to_f32(From{(u8)v}), to_f32(From{(u8)(v >> 8)}));
        hi = convert<To>::pair(to_f32(From{(u8)(v >> 16)}), to_f32(From{(u8)(v >> 24)}));
    }
}

}  // namespace pb
