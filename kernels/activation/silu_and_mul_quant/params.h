/* y = silu(x[:, :hidden]) * x[:, hidden:] in f32, then out and scale from each group of 128 columns of y as
 * parbake/scale.cuh says: scale = max(amax, eps) / 448, out = y * (1 / scale), rounded to nearest even, magnitudes
 * beyond 448 become it. The last group of a row may have fewer columns. A group of zeros gives zeros and the scale of
 * eps; NaN marks its own element only. Strides count elements. */
#ifndef PARBAKE_ACTIVATION_SILU_AND_MUL_QUANT_PARAMS_H
#define PARBAKE_ACTIVATION_SILU_AND_MUL_QUANT_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_silu_and_mul_quant_params {
    const void* x;     /* [rows, 2 * hidden] */
    void* out;         /* [rows, hidden], e4m3; overlaps nothing */
    void* scale;       /* [rows, groups], f32; overlaps nothing */
    pb_i64 x_stride;   /* at least 2 * hidden */
    pb_i64 out_stride; /* at least hidden */
    pb_i64 scale_row_stride;
    pb_i64 scale_group_stride;
    pb_i64 rows;
    pb_i32 hidden;
    pb_u32 groups; /* of a row: hidden / 128, rounded up */
    pb_u32 magic;  /* divide by groups, as activation.cuh says */
    pb_u32 shift;
    float eps; /* least amax that counts, at least 1e-30 */
} pb_silu_and_mul_quant_params;

#endif
