// Products of 8-bit operands by tensor cores: an instruction from sm_89 on, elsewhere that of 16-bit ones.
#pragma once
#include "parbake/fp8.cuh"
#include "parbake/mma.cuh"

namespace pb {

// Whether tensor cores take 8-bit operands. sm_90 and sm_100 have the instruction too, but it widens both operands each
// time: what a product's neighbour uses as well is better widened once.
#if PB_DEVICE && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
#define PB_FP8_MMA 1
#else
#define PB_FP8_MMA 0
#endif

// d += A (16x32, by rows) * B (32x8, by columns), accumulated in f32. Four elements side by side are a word.
template <class A, class B> PB_FN void mma_16832(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if PB_FP8_MMA
#define PB_MMA8(TA, TB)                                                                                            \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." TA "." TB ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, " \
                 "{%0,%1,%2,%3};"                                                                                  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
    if constexpr (!is_e5m2<A> && !is_e5m2<B>) PB_MMA8("e4m3", "e4m3");
    else if constexpr (!is_e5m2<A>) PB_MMA8("e4m3", "e5m2");
    else if constexpr (!is_e5m2<B>) PB_MMA8("e5m2", "e4m3");
    else PB_MMA8("e5m2", "e5m2");
#undef PB_MMA8
#endif
}

// Two of the four 8-bit values of a word as f16, exactly: the first two, or the others. Of operands that are widened one
// product takes the first and another the others: in the same order of both, which is all that a sum asks for.
template <class T, int kHalf> PB_FN u32 widen_two(u32 v) {
#if PB_DEVICE
#if PB_FP8_CVT
    if constexpr (!is_e5m2<T>) {
        u32 r;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((u16)(v >> 16 * kHalf)));
        return r;
    }
#endif
    const u32 high = __byte_perm(v, 0, kHalf ? 0x3424 : 0x1404);
    if constexpr (is_e5m2<T>) return high;
    // The fields of f16 with an exponent that is 8 too small; what was NaN has the bits of one again afterwards.
    const u32 fields = (high & 0x80008000u) | (high & 0x7f007f00u) >> 1, nan = ((fields & 0x3f803f80u) + 0x00800080u) & 0x40004000u;
    u32 r;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(r) : "r"(fields), "r"(0x5c005c00u));
    return r | ((nan << 1) - (nan >> 14));
#else
    u32 lo, hi;
    widen<T, f16>(v, lo, hi);
    return kHalf ? hi : lo;
#endif
}

}  // namespace pb
