// SiLU of the first half of each row times its second half, quantised to e4m3 in groups of 128. params.h is the
// contract.
#pragma once
#include "activation/activation.cuh"
#include "activation/silu_and_mul_quant/params.h"
#include "parbake/scale.cuh"
#include "parbake/warp.cuh"

namespace pb {

// A team of kTeam threads of a warp takes a group; groups are counted through all rows.
template <class T, int kBlock, int kVec> PB_FN void silu_and_mul_quant(const pb_silu_and_mul_quant_params& p) {
    constexpr int kGroup = 128, kLane = kLanes<T, kVec>;
    constexpr int kTeam = kGroup / kLane < 32 ? kGroup / kLane : 32, kEach = kGroup / kLane / kTeam;
    constexpr u32 kTake = kBlock / kTeam;  // groups of a block
    // As many blocks as a row has groups take kTake rows: numbers within them have 32 bits.
    const u32 batch = quotient(blockIdx.x, p.magic, p.shift), lane = threadIdx.x % kTeam;
    const u32 n = (blockIdx.x - batch * p.groups) * kTake + threadIdx.x / kTeam, r = quotient(n, p.magic, p.shift);
    const i64 row = (i64)batch * kTake + r;
    const u32 group = n - r * p.groups;
    const T* x = (const T*)p.x + row * p.x_stride;
    const auto column = [&](int k) { return (int)(group * kGroup + (k * kTeam + lane) * kLane); };
    words<kVec> gate[kEach], up[kEach];
#pragma unroll
    for (int k = 0; k < kEach; k++) {
        const int c = column(k);
        // What is missing is 0, and so is its activation.
        gate[k] = up[k] = {};
        if (row < p.rows && c < p.hidden) {
            gate[k] = ld_once<kVec>(x + c);
            up[k] = ld_once<kVec>(x + p.hidden + c);
        }
    }
    float v[kEach][kLane], y[kLane], top = 0.f;
#pragma unroll
    for (int k = 0; k < kEach; k++) {
        unpack<T, kVec>(gate[k], v[k]);
        unpack<T, kVec>(up[k], y);
        if (near_silu<T, kVec>(gate[k])) {
#pragma unroll
            for (int j = 0; j < kLane; j++) v[k][j] = act_and_mul<kSilu, true>(v[k][j], y[j]);
        } else {
#pragma unroll
            for (int j = 0; j < kLane; j++) v[k][j] = act_and_mul<kSilu>(v[k][j], y[j]);
        }
#pragma unroll
        for (int j = 0; j < kLane; j++) top = max_f(top, fabsf(v[k][j]));
    }
    const float s = group_scale(warp_max<kTeam>(top), p.eps, kLargest<e4m3>), inv = reciprocal(s);
    if (row >= p.rows) return;
    if (lane == 0) ((float*)p.scale)[row * p.scale_row_stride + group * p.scale_group_stride] = s;
    e4m3* out = (e4m3*)p.out + row * p.out_stride;
#pragma unroll
    for (int k = 0; k < kEach; k++) {
        const int c = column(k);
#pragma unroll
        for (int j = 0; j < kLane; j++) v[k][j] *= inv;
        if (c < p.hidden) st_once<kLane>(out + c, pack<e4m3, kLane>(v[k]));
    }
}

}  // namespace pb
