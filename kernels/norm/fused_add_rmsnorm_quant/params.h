/* Row by row: s = x + residual in f32, residual = s rounded, y = s / sqrt(mean(s^2) + eps) * (weight + weight_bias) in f32, out = y * (1 / scale), rounded to
 * nearest even, magnitudes beyond the largest finite value become it. The scale is read on the device, or is
 * scale_value where there is no tensor. A row of zeros gives zeros; NaN gives NaN; a row with an infinity gives NaN for it
 * and zeros. The norm is of s before it is rounded. Strides count elements. */
#ifndef PARBAKE_NORM_FUSED_ADD_RMSNORM_QUANT_PARAMS_H
#define PARBAKE_NORM_FUSED_ADD_RMSNORM_QUANT_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fused_add_rmsnorm_quant_params {
    const void* x;          /* [rows, hidden] */
    void* residual;         /* [rows, hidden], in and out; overlaps nothing */
    const void* weight;     /* [hidden] */
    void* out;              /* [rows, hidden], 8 bits; overlaps nothing */
    const void* scale;      /* [1], f32, positive; may be null */
    pb_i64 x_stride;        /* at least hidden */
    pb_i64 residual_stride; /* at least hidden */
    pb_i64 out_stride;      /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    float eps;
    float weight_bias;      /* 0, or 1 where the weights are stored as their difference from one */
    float scale_value;      /* the scale if there is no tensor */
} pb_fused_add_rmsnorm_quant_params;

#endif
