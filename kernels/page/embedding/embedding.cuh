// Rows of a table by number. params.h is the contract.
#pragma once
#include "page/embedding/params.h"
#include "parbake/vec.cuh"

namespace pb {

// A thread moves up to four accesses of kVec bytes.
template <class Index, int kVec> PB_FN void embedding(const pb_embedding_params& p) {
    constexpr int kHeld = 4;
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= p.threads) return;
    const u32 token = index / (u32)p.groups;
    const int first = (int)(index - token * (u32)p.groups);
    const words<sizeof(Index)> id = ld_nc<sizeof(Index)>((const Index*)p.ids + token * p.ids_stride);
    i64 row = (i32)id.w[0];
    if constexpr (sizeof(Index) == 8) row = (i64)((u64)id.w[1] << 32 | id.w[0]);
    // Of numbers from all of i64: what wraps is no row either.
    const u64 at = (u64)row - (u64)p.first;
    const bool exists = row >= 0 && at < (u64)p.vocab;
    const u8* const from = (const u8*)p.table + (exists ? (i64)at * p.table_stride : 0);
    u8* const to = (u8*)p.out + token * p.out_stride;
    words<kVec> held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const i64 unit = first + (i64)i * p.groups;
        held[i] = {};
        if (exists && unit < p.units) held[i] = ld_nc<kVec>(from + unit * kVec);
    }
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const i64 unit = first + (i64)i * p.groups;
        if (unit < p.units) st<kVec>(to + unit * kVec, held[i]);
    }
}

}  // namespace pb
