// Quantisation to 8 bits with a scale for each row. params.h is the contract.
#pragma once
#include "parbake/block.cuh"
#include "quantization/fp8_quantize_per_token/params.h"
#include "quantization/tile.cuh"

namespace pb {

// kRows == 1: a block takes a row, with as many threads as the launcher likes. kRows == 8: each warp takes one.
template <class T, class Q, int kRows, int kVec>
PB_FN void fp8_quantize_per_token(const pb_fp8_quantize_per_token_params& p) {
    // What a thread keeps in registers; the columns beyond are read twice.
    constexpr int kHeld = 4, kLane = kLanes<T, 16>;
    PB_SHARED_ARRAY(float, slots, 32);
    const int threads = kRows == 1 ? (int)blockDim.x : 32, thread = kRows == 1 ? (int)threadIdx.x : (int)lane_id();
    const i64 row = (i64)blockIdx.x * kRows + (kRows == 1 ? 0 : warp_id());
    const int n = row < p.rows ? p.hidden : 0, begin = thread * kLane, step = threads * kLane;
    const T* x = (const T*)p.x + row * p.x_stride;
    u8* out = (u8*)p.out + row * p.out_stride;

    words<16> held[kHeld];
    float v[kLane], amax = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; i++) held[i] = load_lanes<T, kVec>(x, begin + i * step, n);
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        unpack<T, 16>(held[i], v);
        amax = magnitude(v, amax);
    }
#pragma unroll 1
    for (int c = begin + kHeld * step; c < n; c += step) {
        unpack<T, 16>(load_lanes<T, kVec>(x, c, n), v);
        amax = magnitude(v, amax);
    }
    if constexpr (kRows == 1) amax = block_max(amax, slots);
    else amax = warp_max(amax);
    const float scale = group_scale(amax, p.eps, kLargest<Q>), factor = reciprocal(scale);
    if (thread == 0 && row < p.rows)
        st<4>((float*)p.scale + row * p.scale_stride, words<4>{{bits_of<u32>(scale)}});

    const auto finish = [&](const words<16>& w, int c) {
        unpack<T, 16>(w, v);
#pragma unroll
        for (int j = 0; j < kLane; j++) v[j] *= factor;
        store_bytes<kLane, kVec>(out, c, n, pack<Q, kLane>(v));
    };
#pragma unroll
    for (int i = 0; i < kHeld; i++) finish(held[i], begin + i * step);
#pragma unroll 1
    for (int c = begin + kHeld * step; c < n; c += step) finish(load_lanes<T, kVec>(x, c, n), c);
}

}  // namespace pb
