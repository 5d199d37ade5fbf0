// Addition of the residual and root-mean-square norm of the sum, quantised to 8 bits with a scale for each row. params.h is the contract.
#pragma once
#include "norm/fused_add_rmsnorm_quant_per_token/params.h"
#include "norm/quantize.cuh"

namespace pb {

template <class T, class Q, int kBlock, int kRows, int kPeel> PB_FN void fused_add_rmsnorm_quant_per_token(const pb_fused_add_rmsnorm_quant_per_token_params& p) {
    rmsnorm_quantized<T, Q, true, true, kBlock, kRows, kPeel>(p);
}

}  // namespace pb
