// Copies of blocks within two caches. params.h is the contract.
#pragma once
#include "page/copy_blocks/params.h"
#include "parbake/vec.cuh"

namespace pb {

PB_FN i64 ld_i64(const void* array, i64 i) {
    const words<8> v = ld_nc<8>((const i64*)array + i);
    return (i64)((u64)v.w[1] << 32 | v.w[0]);
}

// A thread moves up to two accesses of kVec bytes in each cache.
template <int kVec> PB_FN void copy_blocks(const pb_copy_blocks_params& p) {
    constexpr int kHeld = 2;
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= p.threads) return;
    const u32 pair = index / (u32)p.groups;
    const int first = (int)(index - pair * (u32)p.groups);
    const i64 from = ld_i64(p.mapping, pair * p.mapping_stride), to = ld_i64(p.mapping, pair * p.mapping_stride + 1);
    if (from < 0 || from >= p.blocks || to < 0 || to >= p.blocks) return;
    u8 *const k = (u8*)p.k_cache, *const v = (u8*)p.v_cache;
    words<kVec> a[kHeld], b[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const i64 unit = first + i * p.groups;
        a[i] = b[i] = {};
        if (unit >= p.units) continue;
        a[i] = ld_once<kVec>(k + from * p.k_stride + unit * kVec);
        b[i] = ld_once<kVec>(v + from * p.v_stride + unit * kVec);
    }
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const i64 unit = first + i * p.groups;
        if (unit >= p.units) break;
        st<kVec>(k + to * p.k_stride + unit * kVec, a[i]);
        st<kVec>(v + to * p.v_stride + unit * kVec, b[i]);
    }
}

}  // namespace pb
