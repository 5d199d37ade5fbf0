// Quantisation to 8 bits with a given scale. params.h is the contract.
#pragma once
#include "quantization/fp8_quantize_per_tensor/params.h"
#include "quantization/tensor.cuh"

namespace pb {

template <class T, class Q, int kHeld, int kVec>
PB_FN void fp8_quantize_per_tensor(const pb_fp8_quantize_per_tensor_params& p) {
    quantize_tensor<T, Q, kHeld, kVec>(p, bits_of<float>(ld_nc<4>(p.scale).w[0]));
}

}  // namespace pb
