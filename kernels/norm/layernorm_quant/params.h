/* Row by row: y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias in f32, as layernorm; out = y * (1 / scale), rounded
 * to nearest even, magnitudes beyond the largest finite value become it. The scale is read on the device, or is
 * scale_value where there is no tensor. A row with NaN or an infinity gives NaN. Strides count elements. */
#ifndef PARBAKE_NORM_LAYERNORM_QUANT_PARAMS_H
#define PARBAKE_NORM_LAYERNORM_QUANT_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_layernorm_quant_params {
    const void* x;      /* [rows, hidden] */
    const void* weight; /* [hidden], f32 */
    const void* bias;   /* [hidden], f32 */
    void* out;          /* [rows, hidden], 8 bits; overlaps nothing */
    const void* scale;  /* [1], f32, positive; may be null */
    pb_i64 x_stride;    /* at least hidden */
    pb_i64 out_stride;  /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    float eps;
    float scale_value; /* the scale if there is no tensor */
} pb_layernorm_quant_params;

#endif
