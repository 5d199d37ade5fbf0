// Memory access of 16, 8, 4, 2 or 1 bytes at a naturally aligned address. The launcher checks alignment on the host;
// the host target checks it again at every access.
//   ld       memory that the kernel may also write
//   ld_nc    read-only for the whole kernel
//   ld_once  read once: passes by L1
//   st       memory that is read again soon
//   st_once  written and left alone: first to be evicted
#pragma once
#include "parbake/types.cuh"

namespace pb {

// kBytes as words, in registers. One or two bytes occupy the low end of a word.
template <int kBytes> struct words {
    static_assert(kBytes == 16 || kBytes == 8 || kBytes == 4 || kBytes == 2 || kBytes == 1,
                  "a width that one instruction moves");
    static constexpr int kCount = kBytes < 4 ? 1 : kBytes / 4;
    u32 w[kCount];
};

#if !PB_DEVICE
namespace host {
typedef u32 __attribute__((may_alias)) any32;
typedef u16 __attribute__((may_alias)) any16;
template <int kBytes> inline words<kBytes> load(const void* ptr, const char* what, Site at) {
    check_access(ptr, kBytes, what, at);
    words<kBytes> r;
    if constexpr (kBytes == 1) r.w[0] = *(const u8*)ptr;
    else if constexpr (kBytes == 2) r.w[0] = *(const any16*)ptr;
    else
        for (int i = 0; i < r.kCount; i++) r.w[i] = ((const any32*)ptr)[i];
    return r;
}
template <int kBytes> inline void store(void* ptr, const words<kBytes>& v, const char* what, Site at) {
    check_access(ptr, kBytes, what, at);
    if constexpr (kBytes == 1) *(u8*)ptr = (u8)v.w[0];
    else if constexpr (kBytes == 2) *(any16*)ptr = (u16)v.w[0];
    else
        for (int i = 0; i < v.kCount; i++) ((any32*)ptr)[i] = v.w[i];
}
}  // namespace host
#endif

template <int kBytes> PB_FN words<kBytes> ld(const void* ptr PB_AT) {
#if PB_DEVICE
    if constexpr (kBytes == 16) {
        const uint4 v = *(const uint4*)ptr;
        return {{v.x, v.y, v.z, v.w}};
    } else if constexpr (kBytes == 8) {
        const uint2 v = *(const uint2*)ptr;
        return {{v.x, v.y}};
    } else if constexpr (kBytes == 4) {
        return {{*(const u32*)ptr}};
    } else if constexpr (kBytes == 2) {
        return {{*(const u16*)ptr}};
    } else {
        return {{*(const u8*)ptr}};
    }
#else
    return host::load<kBytes>(ptr, "ld" PB_PASS_AT);
#endif
}

template <int kBytes> PB_FN words<kBytes> ld_nc(const void* ptr PB_AT) {
#if PB_DEVICE
    words<kBytes> r;
    if constexpr (kBytes == 16)
        asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                     : "l"(ptr));
    else if constexpr (kBytes == 8)
        asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(r.w[0]), "=r"(r.w[1]) : "l"(ptr));
    else if constexpr (kBytes == 4) asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(r.w[0]) : "l"(ptr));
    else if constexpr (kBytes == 2) {
        u16 v;
        asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(ptr));
        r.w[0] = v;
    } else {
        asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(r.w[0]) : "l"(ptr));
    }
    return r;
#else
    return host::load<kBytes>(ptr, "ld_nc" PB_PASS_AT);
#endif
}

// array[i], or `otherwise` without an array. Nothing waits for the load until the value is used.
PB_FN u32 ld_nc_or(const void* array, i64 i, u32 otherwise PB_AT) {
#if PB_DEVICE
    u32 r;
    asm volatile("{.reg .pred there; setp.ne.u64 there, %1, 0; mov.u32 %0, %3; @there ld.global.nc.u32 %0, [%2];}"
                 : "=&r"(r)
                 : "l"(array), "l"((const u32*)array + i), "r"(otherwise));
    return r;
#else
    return array ? ld_nc<4>((const u32*)array + i PB_PASS_AT).w[0] : otherwise;
#endif
}
// Brings what a thread reads later into the first cache.
PB_FN void prefetch(const void* ptr) {
#if PB_DEVICE
    asm volatile("prefetch.global.L1 [%0];" ::"l"(ptr));
#else
    (void)ptr;
#endif
}

// The same from an address that is only aligned to T: one access per value.
template <int kBytes, class T> PB_FN words<kBytes> gather_nc(const T* ptr PB_AT) {
    words<kBytes> r;
#pragma unroll
    for (int i = 0; i < r.kCount; i++) {
        if constexpr (sizeof(T) == 4) r.w[i] = ld_nc<4>(ptr + i PB_PASS_AT).w[0];
        else r.w[i] = ld_nc<2>(ptr + 2 * i PB_PASS_AT).w[0] | ld_nc<2>(ptr + 2 * i + 1 PB_PASS_AT).w[0] << 16;
    }
    return r;
}

// "memory": other accesses of this kernel may be to the same address and must keep their order.
template <int kBytes> PB_FN words<kBytes> ld_once(const void* ptr PB_AT) {
#if PB_DEVICE
    words<kBytes> r;
    if constexpr (kBytes == 16)
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                     : "l"(ptr)
                     : "memory");
    else if constexpr (kBytes == 8)
        asm volatile("ld.global.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                     : "=r"(r.w[0]), "=r"(r.w[1])
                     : "l"(ptr)
                     : "memory");
    else if constexpr (kBytes == 4)
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(r.w[0]) : "l"(ptr) : "memory");
    else if constexpr (kBytes == 2) {
        u16 v;
        asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(ptr) : "memory");
        r.w[0] = v;
    } else {
        asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=r"(r.w[0]) : "l"(ptr) : "memory");
    }
    return r;
#else
    return host::load<kBytes>(ptr, "ld_once" PB_PASS_AT);
#endif
}

template <int kBytes> PB_FN void st(void* ptr, const words<kBytes>& v PB_AT) {
#if PB_DEVICE
    if constexpr (kBytes == 16) *(uint4*)ptr = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
    else if constexpr (kBytes == 8) *(uint2*)ptr = make_uint2(v.w[0], v.w[1]);
    else if constexpr (kBytes == 4) *(u32*)ptr = v.w[0];
    else if constexpr (kBytes == 2) *(u16*)ptr = (u16)v.w[0];
    else *(u8*)ptr = (u8)v.w[0];
#else
    host::store<kBytes>(ptr, v, "st" PB_PASS_AT);
#endif
}

template <int kBytes> PB_FN void st_once(void* ptr, const words<kBytes>& v PB_AT) {
#if PB_DEVICE
    if constexpr (kBytes == 16)
        asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(ptr), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
                     "r"(v.w[3])
                     : "memory");
    else if constexpr (kBytes == 8)
        asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(ptr), "r"(v.w[0]), "r"(v.w[1]) : "memory");
    else if constexpr (kBytes == 4) asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(ptr), "r"(v.w[0]) : "memory");
    else if constexpr (kBytes == 2)
        asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(ptr), "h"((u16)v.w[0]) : "memory");
    else asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(ptr), "r"(v.w[0]) : "memory");
#else
    host::store<kBytes>(ptr, v, "st_once" PB_PASS_AT);
#endif
}

// How many values of T one access of kBytes moves, and their f32 values.
template <class T, int kBytes> inline constexpr int kLanes = kBytes / (int)sizeof(T);

template <class T, int kBytes> PB_FN void unpack(const words<kBytes>& v, float (&f)[kLanes<T, kBytes>]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < v.kCount; i++) f[i] = bits_of<float>(v.w[i]);
    } else if constexpr (sizeof(T) == 1) {
#pragma unroll
        for (int i = 0; i < kBytes; i++) f[i] = to_f32(T{(u8)(v.w[i / 4] >> i % 4 * 8)});
    } else if constexpr (kBytes == 2) {
        f[0] = lo_f32<T>(v.w[0]);
    } else {
#pragma unroll
        for (int i = 0; i < v.kCount; i++) {
            f[2 * i] = lo_f32<T>(v.w[i]);
            f[2 * i + 1] = hi_f32<T>(v.w[i]);
        }
    }
}

// Rounds to T, to nearest even; 8-bit types saturate.
template <class T, int kBytes> PB_FN words<kBytes> pack(const float (&f)[kLanes<T, kBytes>]) {
    words<kBytes> v;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < v.kCount; i++) v.w[i] = bits_of<u32>(f[i]);
    } else if constexpr (sizeof(T) == 1 && kBytes == 1) {
        v.w[0] = convert<T>::from(f[0]).bits;
    } else if constexpr (sizeof(T) == 1 && kBytes == 2) {
        v.w[0] = convert<T>::pair(f[0], f[1]);
    } else if constexpr (sizeof(T) == 1) {
#pragma unroll
        for (int i = 0; i < v.kCount; i++)
            v.w[i] = convert<T>::quad(f[4 * i], f[4 * i + 1], f[4 * i + 2], f[4 * i + 3]);
    } else if constexpr (kBytes == 2) {
        v.w[0] = convert<T>::from(f[0]).bits;
    } else {
#pragma unroll
        for (int i = 0; i < v.kCount; i++) v.w[i] = convert<T>::pair(f[2 * i], f[2 * i + 1]);
    }
    return v;
}

}  // namespace pb
