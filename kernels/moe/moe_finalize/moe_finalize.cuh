// The weighted sum over the choices of each token. params.h is the contract.
#pragma once
#include "moe/moe_finalize/params.h"
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

// A thread takes an access of a token; the loads of four choices are under way together. As many blocks as a token has
// accesses take kBlock tokens: numbers within them have 32 bits.
template <class T, int kBlock, int kVec> PB_FN void moe_finalize(const pb_moe_finalize_params& p) {
    constexpr int kLane = kLanes<T, kVec>, kHeld = 4;
    const u32 batch = quotient(blockIdx.x, p.magic, p.shift);
    const u32 n = (blockIdx.x - batch * p.row) * kBlock + threadIdx.x, r = quotient(n, p.magic, p.shift);
    const i64 token = (i64)batch * kBlock + r;
    if (token * p.row >= p.units) return;
    const T* x = (const T*)p.x + (i64)(n - r * p.row) * kLane;
    const i32* places = (const i32*)p.places + token * p.places_stride;
    const float* weights = (const float*)p.weights + token * p.weights_stride;
    float sum[kLane] = {};
#pragma unroll 1
    for (int first = 0; first < p.k; first += kHeld) {
        i32 place[kHeld];
        float weight[kHeld];
        words<kVec> v[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            place[i] = -1;
            if (first + i >= p.k) continue;
            place[i] = (i32)ld_nc<4>(places + first + i).w[0];
            weight[i] = bits_of<float>(ld_nc<4>(weights + first + i).w[0]);
        }
#pragma unroll
        for (int i = 0; i < kHeld; i++)
            if (place[i] >= 0) v[i] = ld_nc<kVec>(x + place[i] * p.x_stride);
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            if (place[i] < 0) continue;
            float f[kLane];
            unpack<T, kVec>(v[i], f);
#pragma unroll
            for (int j = 0; j < kLane; j++) sum[j] = fmaf(weight[i], f[j], sum[j]);
        }
    }
    st<kVec>((T*)p.out + token * p.out_stride + (i64)(n - r * p.row) * kLane, pack<T, kVec>(sum));
}

}  // namespace pb
