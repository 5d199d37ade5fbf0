// Largest magnitude, in 512 shares. params.h is the contract.
#pragma once
#include "parbake/block.cuh"
#include "quantization/amax/params.h"
#include "quantization/tile.cuh"

namespace pb {

// One block for each share.
template <class T, int kHeld, int kVec> PB_FN void amax(const pb_amax_params& p) {
    constexpr int kLane = kLanes<T, 16>;
    PB_SHARED_ARRAY(float, slots, 32);
    float most = 0.f;
#pragma unroll 1
    for (i64 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const Deal deal = Deal::of<kHeld>(p, (u32)tile);
        const T* x = (const T*)p.x + deal.row * p.x_stride;
        const i64 step = deal.row_step * p.x_stride;
#pragma unroll 1
        for (int first = 0; first < kHeld; first += kFlight<kHeld, kVec>) {
            words<16> held[kFlight<kHeld, kVec>];
#pragma unroll
            for (int j = 0; j < kFlight<kHeld, kVec>; j++) {
                const int i = first + j;
                const bool valid = deal.row + i * deal.row_step < p.rows && !deal.idle;
                held[j] = load_lanes<T, kVec>(x + i * step, (deal.vector + i * deal.vector_step) * kLane,
                                              valid ? p.hidden : 0);
            }
#pragma unroll
            for (int j = 0; j < kFlight<kHeld, kVec>; j++) {
                float v[kLane];
                unpack<T, 16>(held[j], v);
                most = magnitude(v, most);
            }
        }
    }
    most = block_max(most, slots);
    if (threadIdx.x == 0) st<4>((float*)p.out + blockIdx.x, words<4>{{bits_of<u32>(most)}});
}

}  // namespace pb
