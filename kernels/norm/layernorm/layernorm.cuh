// Norm of rows by mean and variance. params.h is the contract.
#pragma once
#include "norm/layernorm.cuh"
#include "norm/layernorm/params.h"

namespace pb {

template <class T, int kBlock, int kRows, int kPeel> PB_FN void layernorm(const pb_layernorm_params& p) {
    layernorm_rows<T, T, kBlock, kRows, kPeel>(p);
}

}  // namespace pb
