// Products by a group of four warps, with operands in shared memory (wgmma, sm_90a only). Device code only.
//
// Operand tiles have rows of 128 bytes at a multiple of 1024 bytes, permuted as the copy engine does with a swizzle of
// 128 bytes: the 16-byte chunk c of row r lies where chunk c ^ (r % 8) would. Accumulators are f32, those of warp w as
// mma.sync has them: d[j][2 h + i] is row 16 w + 8 h + l / 4, column 8 j + 2 (l % 4) + i for lane l.
#pragma once
#include "parbake/fp8.cuh"

#if PB_DEVICE
namespace pb {

// Bytes from here to where a tile may begin.
PB_FN int wgmma_gap(Shared from) {
    return -(int)from.at & 1023;
}
// Where an operand of 64 rows, or of as many as the accumulator has columns, begins: rows along K, or along the other
// dimension (`tall`: tiles [K][64] side by side, `panel` bytes apart).
PB_FN u64 wgmma_operand(Shared tile) {
    return (u64)1 << 62 | (u64)64 << 32 | (u64)1 << 16 | (u64)(tile.at >> 4 & 0x3fff);
}
PB_FN u64 wgmma_operand_tall(Shared tile, u32 panel) {
    return (u64)1 << 62 | (u64)64 << 32 | (u64)(panel >> 4) << 16 | (u64)(tile.at >> 4 & 0x3fff);
}
// `bytes` further on in the same tile.
PB_FN u64 wgmma_step(u64 operand, int bytes) {
    return operand + (u64)(bytes >> 4);
}

// Before the first product, and after other instructions have touched an accumulator.
PB_FN void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
PB_FN void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kGroups> PB_FN void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// An accumulator is not moved to other registers past this point.
template <int kCount> PB_FN void wgmma_hold(float (&d)[kCount][4]) {
#pragma unroll
    for (int i = 0; i < kCount; i++) asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

// Whether a block of so many threads has the registers that kLoading threads with kFewer and the others with kMore ask
// for: what it was launched with, in units of 8 a thread. If not, it waits for them forever.
template <int kThreads, int kLoading, int kFewer, int kMore> PB_FN constexpr bool registers_suffice() {
    return kLoading * kFewer + (kThreads - kLoading) * kMore <= 65536 / kThreads / 8 * 8 * kThreads;
}
// More registers for the warps that compute, fewer for those that load. All warps of a group come to it.
template <int kCount> PB_FN void registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount> PB_FN void registers_fewer() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// d (64 x kColumns) = a (64 x 32 bytes) b^T, or kAdd: d + that. `a` is a tile, or registers as mma.sync has them.
template <class T, int kColumns, bool kTallA = false, bool kTallB = false> struct Wgmma;

#define PB_D4(i) "+f"(d[(i) / 4][0]), "+f"(d[(i) / 4][1]), "+f"(d[(i) / 4][2]), "+f"(d[(i) / 4][3])
#define PB_D8(i) PB_D4(i), PB_D4(i + 4)
#define PB_D16(i) PB_D8(i), PB_D8(i + 8)
#define PB_D32(i) PB_D16(i), PB_D16(i + 16)
#define PB_D64(i) PB_D32(i), PB_D32(i + 32)
#define PB_D128(i) PB_D64(i), PB_D64(i + 64)
#define PB_R4 "%0, %1, %2, %3"
#define PB_R8 PB_R4 ", %4, %5, %6, %7"
#define PB_R16 PB_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PB_R32 PB_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PB_R64 \
    PB_R32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
    "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PB_R128 \
    PB_R64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, " \
    "%107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, " \
    "%125, %126, %127"

// Of a column count: the number n of its registers, and the names of the operands after them.
#define PB_WGMMA_16(T, kind, columns, n, a, b, c, e, f, g, h) \
    template <bool kTallA, bool kTallB> struct Wgmma<T, columns, kTallA, kTallB> { \
        template <bool kAdd> static PB_FN void of(float (&d)[n / 4][4], u64 x, u64 y) { \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, " c ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
                         "k16.f32." kind " {" PB_R##n "}, " a ", " b ", p, 1, 1, " e ", " f "; }" \
                         : PB_D##n(0) \
                         : "l"(x), "l"(y), "n"((int)kAdd), "n"(kTallA ? 1 : 0), "n"(kTallB ? 1 : 0)); \
        } \
        template <bool kAdd> static PB_FN void of(float (&d)[n / 4][4], const u32 (&x)[4], u64 y) { \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, " f ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
                         "k16.f32." kind " {" PB_R##n "}, {" a ", " b ", " c ", " e "}, " g ", p, 1, 1, " h "; }" \
                         : PB_D##n(0) \
                         : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "n"((int)kAdd), "l"(y), "n"(kTallB ? 1 : 0)); \
        } \
    };
#define PB_WGMMA_8(T, kind, columns, n, a, b, c) \
    template <> struct Wgmma<T, columns, false, false> { \
        template <bool kAdd> static PB_FN void of(float (&d)[n / 4][4], u64 x, u64 y) { \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, " c ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
                         "k32.f32." kind " {" PB_R##n "}, " a ", " b ", p, 1, 1; }" \
                         : PB_D##n(0) \
                         : "l"(x), "l"(y), "n"((int)kAdd)); \
        } \
    };
#define PB_WGMMA(columns, n, a, b, c, e, f, g, h) \
    PB_WGMMA_16(bf16, "bf16.bf16", columns, n, a, b, c, e, f, g, h) \
    PB_WGMMA_16(f16, "f16.f16", columns, n, a, b, c, e, f, g, h) \
    PB_WGMMA_8(e4m3, "e4m3.e4m3", columns, n, a, b, c)

PB_WGMMA(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
PB_WGMMA(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
PB_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
PB_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PB_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
PB_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#undef PB_WGMMA
#undef PB_WGMMA_8
#undef PB_WGMMA_16
#undef PB_R128
#undef PB_R64
#undef PB_R32
#undef PB_R16
#undef PB_R8
#undef PB_R4
#undef PB_D128
#undef PB_D64
#undef PB_D32
#undef PB_D16
#undef PB_D8
#undef PB_D4

}  // namespace pb
#endif
