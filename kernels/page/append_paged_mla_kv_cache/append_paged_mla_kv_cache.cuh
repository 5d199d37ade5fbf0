// The compressed cache of multi-head latent attention. params.h is the contract.
#pragma once
#include "page/append_paged_mla_kv_cache/params.h"
#include "page/slot.cuh"

namespace pb {

// A thread moves the same kVec bytes of up to four tokens.
template <int kVec> PB_FN void append_paged_mla_kv_cache(const pb_append_paged_mla_kv_cache_params& p) {
    constexpr int kTokens = 4;
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= p.threads) return;
    const u32 row = index / (u32)p.units;
    int unit = (int)(index - row * (u32)p.units);
    const bool kpe = unit >= p.ckv_units;
    if (kpe) unit -= p.ckv_units;
    const u8* from = (const u8*)(kpe ? p.kpe : p.ckv) + unit * kVec;
    u8* to = (u8*)(kpe ? p.kpe_cache : p.ckv_cache) + unit * kVec;
    const i64 stride = kpe ? p.kpe_stride : p.ckv_stride;
    const i64 page_stride = kpe ? p.kpe_page_stride : p.ckv_page_stride;
    const i64 entry_stride = kpe ? p.kpe_entry_stride : p.ckv_entry_stride;
    words<kVec> v[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; i++) {
        const i64 token = row + (i64)i * p.rows;
        v[i] = {};
        if (token < p.tokens) v[i] = ld_once<kVec>(from + token * stride);
    }
#pragma unroll
    for (int i = 0; i < kTokens; i++) {
        const i64 token = row + (i64)i * p.rows;
        if (token >= p.tokens) break;
        const Slot s = slot(p, token);
        if (s.page >= 0) st<kVec>(to + s.page * page_stride + s.entry * entry_stride, v[i]);
    }
}

}  // namespace pb
