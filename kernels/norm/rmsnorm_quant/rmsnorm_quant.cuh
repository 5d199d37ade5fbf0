// Root-mean-square norm of rows, quantised to 8 bits with one scale. params.h is the contract.
#pragma once
#include "norm/rmsnorm_quant/params.h"
#include "norm/quantize.cuh"

namespace pb {

template <class T, class Q, int kBlock, int kRows, int kPeel> PB_FN void rmsnorm_quant(const pb_rmsnorm_quant_params& p) {
    rmsnorm_quantized<T, Q, false, false, kBlock, kRows, kPeel>(p);
}

}  // namespace pb
