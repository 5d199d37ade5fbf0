// Quantisation to 8 bits with the scale of the largest magnitude. params.h is the contract.
#pragma once
#include "parbake/block.cuh"
#include "quantization/fp8_quantize_per_tensor_dynamic/params.h"
#include "quantization/tensor.cuh"

namespace pb {

template <class T, class Q, int kHeld, int kVec>
PB_FN void fp8_quantize_per_tensor_dynamic(const pb_fp8_quantize_per_tensor_dynamic_params& p) {
    PB_SHARED_ARRAY(float, slots, 32);
    // Every block finds the same scale: that costs less than a launch.
    float most = 0.f;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < 512; i += blockDim.x)
        most = fmaxf(most, bits_of<float>(ld_nc<4>((const float*)p.amax + i).w[0]));
    const float scale = group_scale(block_max(most, slots), p.eps, kLargest<Q>);
    if (blockIdx.x == 0 && threadIdx.x == 0) st<4>(p.scale, words<4>{{bits_of<u32>(scale)}});
    quantize_tensor<T, Q, kHeld, kVec>(p, scale);
}

}  // namespace pb
