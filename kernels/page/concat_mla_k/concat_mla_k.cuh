// Keys of multi-head latent attention from their two parts. params.h is the contract.
#pragma once
#include "page/concat_mla_k/params.h"
#include "parbake/vec.cuh"

namespace pb {

// A thread moves the same kVec bytes of up to four heads of a token.
template <int kVec> PB_FN void concat_mla_k(const pb_concat_mla_k_params& p) {
    constexpr int kHeads = 4;
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= p.threads) return;
    const u32 row = index / (u32)p.units, token = row / (u32)p.groups;
    const int unit = (int)(index - row * (u32)p.units), group = (int)(row - token * (u32)p.groups);
    const bool rope = unit >= p.nope_units;
    const u8* from = rope ? (const u8*)p.k_rope + (i64)token * p.rope_stride + (unit - p.nope_units) * kVec
                          : (const u8*)p.k_nope + (i64)token * p.nope_stride + unit * kVec;
    const i64 stride = rope ? 0 : p.nope_head_stride;
    u8* to = (u8*)p.k + (i64)token * p.k_stride + unit * kVec;
    words<kVec> v[kHeads];
#pragma unroll
    for (int i = 0; i < kHeads; i++) {
        const int head = group + i * p.groups;
        v[i] = {};
        if (head < p.heads) v[i] = ld_nc<kVec>(from + head * stride);
    }
#pragma unroll
    for (int i = 0; i < kHeads; i++) {
        const int head = group + i * p.groups;
        if (head < p.heads) st<kVec>(to + head * p.k_head_stride, v[i]);
    }
}

}  // namespace pb
