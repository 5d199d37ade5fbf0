// Addition of the residual and root-mean-square norm of the sum, quantised to 8 bits with one scale. params.h is the contract.
#pragma once
#include "norm/fused_add_rmsnorm_quant/params.h"
#include "norm/quantize.cuh"

namespace pb {

template <class T, class Q, int kBlock, int kRows, int kPeel> PB_FN void fused_add_rmsnorm_quant(const pb_fused_add_rmsnorm_quant_params& p) {
    rmsnorm_quantized<T, Q, true, false, kBlock, kRows, kPeel>(p);
}

}  // namespace pb
