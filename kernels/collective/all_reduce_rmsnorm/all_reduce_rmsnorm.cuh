// The sum over ranks, the addition of the residual, and the root-mean-square norm of it, in 16 and 8 bits. params.h is the
// contract.
#pragma once
#include "collective/all_reduce_rmsnorm/params.h"
#include "collective/group.cuh"
#include "parbake/block.cuh"
#include "parbake/fp8.cuh"
#include "parbake/scale.cuh"

namespace pb {

// A block takes row after row; a row stays in registers between the sum and the norm.
template <class T> PB_FN void all_reduce_rmsnorm(const pb_all_reduce_rmsnorm_params& p) {
    // Twice as many accesses of a row in f32 leave registers for half as many ranks: CUDA 12.9 spilled for sm_100.
    constexpr int kLane = kLanes<T, 16>, kHeld = 32 / kLane, kTogether = sizeof(T) == 4 ? 4 : kMostRanks;
    PB_SHARED_ARRAY(u64, regions, kMostRanks);
    PB_SHARED_ARRAY(float, slots, 64);
    const Group group(p.group, regions);
    const Part part(p.rows, p.per);
    const int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int n = 0; n < part.count; n++)
        group.share((const unsigned char*)((const T*)p.x + (part.first + n) * p.x_stride), p.units, (i64)n * p.units);
    float inv = 1.f;
    if (p.quant) inv = reciprocal(p.scale ? *(const float*)p.scale : p.scale_value);
    group.meet(1);
    group.finish();

#pragma unroll 1
    for (int n = 0; n < part.count; n++) {
        const i64 row = part.first + n;
        const T* residual = (const T*)p.residual + row * p.residual_stride;
        T* residual_out = (T*)p.residual_out + row * p.residual_out_stride;
        float s[kHeld][kLane], squares = 0.f;
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int unit = i * threads + thread;
            if (unit >= p.units) break;
            float r[kLane];
            const words<16> add = ld<16>(residual + unit * kLane);
            group.sum<T, kTogether>((i64)n * p.units + unit, s[i]);
            unpack<T, 16>(add, r);
#pragma unroll
            for (int j = 0; j < kLane; j++) {
                s[i][j] += r[j];
                squares += s[i][j] * s[i][j];
            }
            st<16>(residual_out + unit * kLane, pack<T, 16>(s[i]));
        }
        // Two arrays in turn, so that the barrier of one row guards the other's.
        const float r = rsqrt_fast(block_sum(squares, slots + 32 * (n & 1)) * p.inv_hidden + p.eps);
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const int unit = i * threads + thread;
            if (unit >= p.units) break;
            float y[kLane];
            unpack<T, 16>(ld_nc<16>((const T*)p.weight + unit * kLane), y);
#pragma unroll
            for (int j = 0; j < kLane; j++) y[j] = s[i][j] * r * (y[j] + p.weight_bias);
            if (p.out) st<16>((T*)p.out + row * p.out_stride + unit * kLane, pack<T, 16>(y));
            if (!p.quant) continue;
#pragma unroll
            for (int j = 0; j < kLane; j++) y[j] *= inv;
            st<kLane>((e4m3*)p.quant + row * p.quant_stride + unit * kLane, pack<e4m3, kLane>(y));
        }
    }
}

}  // namespace pb
