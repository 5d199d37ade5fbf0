/* Row by row: y = x / sqrt(mean(x^2) + eps) * (weight + weight_bias) in f32, then out and scale from y as
 * parbake/scale.cuh says: scale = max(amax, floor) / 448 (e5m2: / 57344), out = y * (1 / scale), rounded to nearest even,
 * magnitudes beyond the largest finite value become it. A row of zeros gives zeros and the scale of the floor. NaN gives
 * NaN; a row with an infinity gives NaN for it and zeros. Strides count elements. */
#ifndef PARBAKE_NORM_RMSNORM_QUANT_PER_TOKEN_PARAMS_H
#define PARBAKE_NORM_RMSNORM_QUANT_PER_TOKEN_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_rmsnorm_quant_per_token_params {
    const void* x;       /* [rows, hidden] */
    const void* weight;  /* [hidden] */
    void* out;           /* [rows, hidden], 8 bits; overlaps nothing */
    void* scale;         /* [rows], f32 */
    pb_i64 x_stride;     /* at least hidden */
    pb_i64 out_stride;   /* at least hidden */
    pb_i64 scale_stride;
    pb_i64 rows;
    pb_i32 hidden;
    float eps;
    float weight_bias;   /* 0, or 1 where the weights are stored as their difference from one */
    float floor;         /* least amax that counts, at least 1e-30 */
} pb_rmsnorm_quant_per_token_params;

#endif
