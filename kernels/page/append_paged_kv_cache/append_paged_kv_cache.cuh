// Keys and values of tokens into the pages of a cache. params.h is the contract.
#pragma once
#include "page/append_paged_kv_cache/params.h"
#include "page/slot.cuh"

namespace pb {

// A thread moves kVec bytes of key and value of up to four heads of a token.
template <int kVec> PB_FN void append_paged_kv_cache(const pb_append_paged_kv_cache_params& p) {
    constexpr int kHeads = 4;
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= p.threads) return;
    const u32 row = index / (u32)p.units, token = row / (u32)p.groups;
    const int group = (int)(row - token * (u32)p.groups), at = (int)(index - row * (u32)p.units) * kVec;
    // They do not wait for the slot.
    words<kVec> k[kHeads], v[kHeads];
    const u8* key = (const u8*)p.key + (i64)token * p.key_stride + at;
    const u8* value = (const u8*)p.value + (i64)token * p.value_stride + at;
#pragma unroll
    for (int i = 0; i < kHeads; i++) {
        const int head = group + i * p.groups;
        k[i] = v[i] = {};
        if (head >= p.heads) continue;
        k[i] = ld_once<kVec>(key + head * p.key_head_stride);
        v[i] = ld_once<kVec>(value + head * p.value_head_stride);
    }
    const Slot s = slot(p, token);
    if (s.page < 0) return;
    u8* k_cache = (u8*)p.k_cache + s.page * p.k_stride + s.entry * p.k_entry_stride + at;
    u8* v_cache = (u8*)p.v_cache + s.page * p.v_stride + s.entry * p.v_entry_stride + at;
#pragma unroll
    for (int i = 0; i < kHeads; i++) {
        const int head = group + i * p.groups;
        if (head >= p.heads) break;
        st_once<kVec>(k_cache + head * p.k_head_stride, k[i]);
        st_once<kVec>(v_cache + head * p.v_head_stride, v[i]);
    }
}

}  // namespace pb
