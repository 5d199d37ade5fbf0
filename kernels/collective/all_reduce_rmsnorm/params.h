/* Row by row: s = the sum over ranks of their x + residual, in f32 and in the order of ranks; residual_out = s rounded,
 * y = s / sqrt(mean(s^2) + eps) * (weight + weight_bias) in f32; out = y rounded, quant = y * (1 / scale) rounded, magnitudes
 * beyond the largest finite value become it. The norm is of s before it is rounded. Strides count elements, and rows begin
 * at multiples of 16 bytes; those of quant at multiples of as many elements. */
#ifndef PARBAKE_COLLECTIVE_ALL_REDUCE_RMSNORM_PARAMS_H
#define PARBAKE_COLLECTIVE_ALL_REDUCE_RMSNORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_all_reduce_rmsnorm_params {
    pb_group group;
    const void* x;        /* [rows, hidden] */
    const void* residual; /* [rows, hidden] */
    const void* weight;   /* [hidden] */
    void* residual_out;   /* [rows, hidden]; may be residual itself with the same stride */
    void* out;            /* [rows, hidden], may be x itself with the same stride; or null */
    void* quant;          /* e4m3 [rows, hidden]; or null */
    const void* scale;    /* f32 [1], positive; or null */
    pb_i64 x_stride;
    pb_i64 residual_stride;
    pb_i64 residual_out_stride;
    pb_i64 out_stride;
    pb_i64 quant_stride;
    pb_i64 rows;
    pb_i64 per; /* rows of a block; the last one may have fewer, none has none */
    pb_i32 units; /* of 16 bytes in a row: at most 32 floats for each thread */
    float inv_hidden;
    float eps;
    float weight_bias;
    float scale_value; /* the scale where there is no tensor */
} pb_all_reduce_rmsnorm_params;

#endif
