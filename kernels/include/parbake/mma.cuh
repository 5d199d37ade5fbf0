// Tensor-core instructions that every architecture from sm_80 on has: ldmatrix and mma.sync.
#pragma once
#include "parbake/types.cuh"

namespace pb {

// Four 8x8 matrices of 16-bit values; lane 8 j + r gives the address of row r of matrix j.
template <bool kTrans> PB_FN void ldmatrix_x4(u32 (&r)[4], Shared row PB_AT) {
#if PB_DEVICE
    const u32 a = row.at;
    if constexpr (kTrans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(a)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(a)
                     : "memory");
#else
    host::ldmatrix_x4(r, row.at, kTrans PB_PASS_AT);
#endif
}

// d += A (16x16, by rows) * B (16x8, by columns), accumulated in f32.
template <class T> PB_FN void mma_16816(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1 PB_AT) {
#if PB_DEVICE
    if constexpr (is_bf16<T>)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    host::mma_16816(d, a, b0, b1, is_bf16<T> ? host::kBf16 : host::kF16 PB_PASS_AT);
#endif
}

}  // namespace pb
