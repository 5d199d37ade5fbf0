// Root-mean-square norm of rows, quantised to 8 bits with a scale for each row. params.h is the contract.
#pragma once
#include "norm/rmsnorm_quant_per_token/params.h"
#include "norm/quantize.cuh"

namespace pb {

template <class T, class Q, int kBlock, int kRows, int kPeel> PB_FN void rmsnorm_quant_per_token(const pb_rmsnorm_quant_per_token_params& p) {
    rmsnorm_quantized<T, Q, false, true, kBlock, kRows, kPeel>(p);
}

}  // namespace pb
