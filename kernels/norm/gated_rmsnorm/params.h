/* s = x, or x * silu(gate); out = s / sqrt(mean(s^2) + eps) * weight, times silu(gate) if it is not in s. Strides count
 * elements. The fields are the arguments of the kernel in Triton, in order, and behind them its own two. */
#ifndef PARBAKE_NORM_GATED_RMSNORM_PARAMS_H
#define PARBAKE_NORM_GATED_RMSNORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_gated_rmsnorm_params {
    const void* x;       /* [rows, hidden] */
    const void* gate;    /* [rows, hidden] */
    const void* weight;  /* [hidden] */
    void* out;           /* [rows, hidden]; may be x itself with the same stride, otherwise overlaps nothing */
    pb_i64 x_stride;     /* at least hidden, or anything for a single row */
    pb_i64 gate_stride;  /* the same */
    pb_i64 out_stride;   /* the same */
    pb_i32 hidden;
    float eps;
    void* global_scratch;  /* null */
    void* profile_scratch; /* null */
} pb_gated_rmsnorm_params;

#endif
