// Norm of rows by mean and variance, quantised to 8 bits with one scale. params.h is the contract.
#pragma once
#include "norm/layernorm.cuh"
#include "norm/layernorm_quant/params.h"

namespace pb {

template <class T, class Q, int kBlock, int kRows, int kPeel>
PB_FN void layernorm_quant(const pb_layernorm_quant_params& p) {
    layernorm_rows<T, Q, kBlock, kRows, kPeel>(p);
}

}  // namespace pb
