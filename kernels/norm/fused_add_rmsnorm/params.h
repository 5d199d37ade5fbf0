/* In place, row by row: s = x + residual in f32; residual = s; x = s / sqrt(mean(s^2) + eps) * (weight + weight_bias).
 * The norm is of s before it is rounded to the residual's type. Strides count elements. */
#ifndef PARBAKE_NORM_FUSED_ADD_RMSNORM_PARAMS_H
#define PARBAKE_NORM_FUSED_ADD_RMSNORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fused_add_rmsnorm_params {
    void* x;                /* [rows, hidden], in and out; overlaps nothing */
    void* residual;         /* [rows, hidden], in and out; overlaps nothing */
    const void* weight;     /* [hidden] */
    pb_i64 x_stride;        /* at least hidden */
    pb_i64 residual_stride; /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    float eps;
    float weight_bias; /* 0, or 1 where the weights are stored as their difference from one */
} pb_fused_add_rmsnorm_params;

#endif
