// e2m1, the 4-bit floating-point type: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; bit 3 is the sign. Two to a
// byte, the first one in the low half.
// From f32: rounded to nearest, a tie to the even code; magnitudes beyond 6 become 6 with their sign, NaN becomes +6.
// The instruction exists in the families of sm_100 and newer only and does exactly this; elsewhere arithmetic does it.
#pragma once
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

inline constexpr float kLargestE2m1 = 6.f;

#if PB_DEVICE && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#define PB_FP4_CVT (__CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000)
#else
#define PB_FP4_CVT 0
#endif

// 2^23 plus the code of |v|, so that the code stands in the lowest bits. Each sum rounds to one of the type's three
// spacings. Where the spacing is not the value's own, the code comes out too large: the least is right. NaN gives 7.
PB_FN float e2m1_magnitude(float v) {
    const float a = fabsf(v);
    const float fine = fmaf(a, 2.f, 0x1p23f), middle = a + (0x1p23f + 2.f), coarse = fmaf(a, 0.5f, 0x1p23f + 4.f);
    return fminf(fminf(fine, middle), fminf(coarse, 0x1p23f + 7.f));
}
// The sign of a over byte 0, that of b over byte 1; the other bytes hold anything. NaN has none: on a GPU a product
// that is NaN is positive.
PB_FN u32 sign_bytes(float a, float b) {
#if PB_DEVICE
    u32 r;
    asm("prmt.b32 %0, %1, %2, 0x00fb;" : "=r"(r) : "f"(a), "f"(b));
    return r;
#else
    return (a == a && bits_of<u32>(a) >> 31 ? 0xffu : 0u) | (b == b && bits_of<u32>(b) >> 31 ? 0xff00u : 0u);
#endif
}
// Four codes in 16 bits, put together as floats: integers below 2^24 are exact, and integer instructions are the
// scarcer.
PB_FN u32 e2m1_quad(float a, float b, float c, float d) {
    float sum = fmaf(e2m1_magnitude(b) - 0x1p23f, 16.f, e2m1_magnitude(a));
    sum = fmaf(e2m1_magnitude(c) - 0x1p23f, 256.f, sum);
    sum = fmaf(e2m1_magnitude(d) - 0x1p23f, 4096.f, sum);
    return (bits_of<u32>(sum) & 0x7777u) | (sign_bytes(a, c) & 0x0808u) | (sign_bytes(b, d) & 0x8080u);
}

// Packs values. The first one lands in the lowest bits.
template <int kCount> PB_FN words<kCount / 2> pack_e2m1(const float (&v)[kCount]) {
    words<kCount / 2> r;
    static_assert(kCount == 8 || kCount == 4, "what 16 bytes of input hold");
#if PB_FP4_CVT
    if constexpr (kCount == 8)
        asm("{ .reg .b8 a, b, c, d;\n"
            "cvt.rn.satfinite.e2m1x2.f32 a, %2, %1;\n"
            "cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;\n"
            "cvt.rn.satfinite.e2m1x2.f32 c, %6, %5;\n"
            "cvt.rn.satfinite.e2m1x2.f32 d, %8, %7;\n"
            "mov.b32 %0, {a, b, c, d}; }"
            : "=r"(r.w[0])
            : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
    else
        asm("{ .reg .b8 a, b, z;\n"
            "cvt.rn.satfinite.e2m1x2.f32 a, %2, %1;\n"
            "cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;\n"
            "mov.b32 %0, {a, b, 0, 0}; }"
            : "=r"(r.w[0])
            : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]));
#else
    r.w[0] = e2m1_quad(v[0], v[1], v[2], v[3]);
    if constexpr (kCount == 8) r.w[0] |= e2m1_quad(v[4], v[5], v[6], v[7]) << 16;
#endif
    return r;
}

// The value of a code; bits above the fourth are ignored.
PB_FN float e2m1_to_f32(u32 code) {
    // The fields of an f32 whose exponent is 126 too small; right for 0.5 too, which is a subnormal there.
    return bits_of<float>(bits_of<u32>(bits_of<float>((code & 7u) << 22) * 0x1p126f) | (code & 8u) << 28);
}

template <int kCount> PB_FN void unpack_e2m1(u32 packed, float (&v)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i++) v[i] = e2m1_to_f32(packed >> 4 * i);
}

}  // namespace pb
