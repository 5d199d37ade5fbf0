/* Row by row: out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, where var(x) is the mean of (x - mean(x))^2. All in
 * f32; the variance is found from differences, not from squares of the values. A row with NaN or an infinity gives NaN.
 * Strides count elements. */
#ifndef PARBAKE_NORM_LAYERNORM_PARAMS_H
#define PARBAKE_NORM_LAYERNORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_layernorm_params {
    const void* x;      /* [rows, hidden] */
    const void* weight; /* [hidden], f32 */
    const void* bias;   /* [hidden], f32 */
    void* out;          /* [rows, hidden]; may be x itself with the same stride, otherwise overlaps nothing */
    pb_i64 x_stride;    /* at least hidden */
    pb_i64 out_stride;  /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    float eps;
} pb_layernorm_params;

#endif
