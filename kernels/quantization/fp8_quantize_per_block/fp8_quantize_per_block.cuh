// Quantisation to 8 bits with a scale for each tile of 128 x 128. params.h is the contract.
#pragma once
#include "parbake/block.cuh"
#include "quantization/fp8_quantize_per_block/params.h"
#include "quantization/tile.cuh"

namespace pb {

// 512 threads take a tile and hold it in registers.
template <class T, class Q, int kVec> PB_FN void fp8_quantize_per_block(const pb_fp8_quantize_per_block_params& p) {
    constexpr int kLane = kLanes<T, 16>, kAcross = 128 / kLane, kDown = 512 / kAcross, kHeld = 128 / kDown;
    PB_SHARED_ARRAY(float, slots, 32);
    const u32 tiles = ((u32)p.hidden + 127) / 128, tile = blockIdx.x / tiles, column = blockIdx.x % tiles;
    const int c = (int)(column * 128 + threadIdx.x % kAcross * kLane);
    const i64 row = (i64)tile * 128 + threadIdx.x / kAcross;
    const T* x = (const T*)p.x + row * p.x_stride;
    u8* out = (u8*)p.out + row * p.out_stride;
    words<16> held[kHeld];
    float v[kLane], amax = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; i++)
        held[i] = load_lanes<T, kVec>(x + i * kDown * p.x_stride, c, row + i * kDown < p.rows ? p.hidden : 0);
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        unpack<T, 16>(held[i], v);
        amax = magnitude(v, amax);
    }
    amax = block_max(amax, slots);
    const float scale = p.power_of_two ? to_f32(group_exponent(fmaxf(amax, p.eps), kLargest<Q>))
                                       : group_scale(amax, p.eps, kLargest<Q>);
    const float factor = reciprocal(scale);
    if (threadIdx.x == 0)
        st<4>((float*)p.scale + tile * p.scale_stride + column * p.scale_column_stride,
              words<4>{{bits_of<u32>(scale)}});
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        unpack<T, 16>(held[i], v);
#pragma unroll
        for (int j = 0; j < kLane; j++) v[j] *= factor;
        store_bytes<kLane, kVec>(out + i * kDown * p.out_stride, c, row + i * kDown < p.rows ? p.hidden : 0,
                                 pack<Q, kLane>(v));
    }
}

}  // namespace pb
