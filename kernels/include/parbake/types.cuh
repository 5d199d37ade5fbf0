// Integers, the 16-bit floating-point types, and conversions between them and f32.
// cvt.rn.bf16x2.f32 needs sm_80, so a kernel that stores bf16 does too; f16 and f32 have no such floor.
#pragma once
#include "parbake/platform.cuh"

namespace pb {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

template <class T> inline constexpr bool is_bf16 = false;
template <> inline constexpr bool is_bf16<bf16> = true;

template <class To, class From> PB_FN To bits_of(From v) {
    return __builtin_bit_cast(To, v);
}

inline constexpr float kInf = __builtin_bit_cast(float, 0x7f800000u);

PB_FN float to_f32(float v) {
    return v;
}
PB_FN float to_f32(bf16 v) {
    return bits_of<float>((u32)v.bits << 16);
}
PB_FN float to_f32(f16 v) {
#if PB_DEVICE
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
    return r;
#else
    return host::f16_to_f32(v.bits);
#endif
}

// A place in shared memory: one 32-bit register on a GPU.
#if PB_DEVICE
struct Shared {
    u32 at;
    PB_FN Shared operator+(int bytes) const { return {at + (u32)bytes}; }
    // Flips bits below 128 of an address of a multiple of 128 plus bits below 128.
    PB_FN Shared operator^(int bits) const { return {at ^ (u32)bits}; }
};
PB_FN Shared shared(const void* ptr) {
    return {(u32)__cvta_generic_to_shared(ptr)};
}
#else
struct Shared {
    unsigned char* at;
    Shared operator+(int bytes) const { return {at + bytes}; }
    Shared operator^(int bits) const { return {(unsigned char*)((__UINTPTR_TYPE__)at ^ (__UINTPTR_TYPE__)bits)}; }
};
inline Shared shared(void* ptr) {
    return {(unsigned char*)ptr};
}
#endif

// f32 to T, rounded to nearest even. `pair` puts two 16-bit values in one word, the first one in the low half.
template <class T> struct convert;
template <> struct convert<float> {
    static PB_FN float from(float v) { return v; }
};
template <> struct convert<bf16> {
    static PB_FN u32 pair(float lo, float hi) {
#if PB_DEVICE
        u32 r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
#else
        return (u32)host::f32_to_bf16(lo) | (u32)host::f32_to_bf16(hi) << 16;
#endif
    }
    static PB_FN bf16 from(float v) { return {(u16)pair(v, 0.f)}; }
};
template <> struct convert<f16> {
    static PB_FN u32 pair(float lo, float hi) {
#if PB_DEVICE
#if __CUDA_ARCH__ >= 800
        u32 r;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
#else
        u16 l, h;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(l) : "f"(lo));
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(hi));
        return (u32)l | (u32)h << 16;
#endif
#else
        return (u32)host::f32_to_f16(lo) | (u32)host::f32_to_f16(hi) << 16;
#endif
    }
    static PB_FN f16 from(float v) { return {(u16)pair(v, 0.f)}; }
};

// The two values of a word of 16-bit type T.
template <class T> PB_FN float lo_f32(u32 w) {
    return to_f32(T{(u16)w});
}
template <class T> PB_FN float hi_f32(u32 w) {
    if constexpr (is_bf16<T>) return bits_of<float>(w & 0xffff0000u);  // one instruction instead of two shifts
    else return to_f32(T{(u16)(w >> 16)});
}

}  // namespace pb
