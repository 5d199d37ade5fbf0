/* out = x / sqrt(mean(x^2) + eps) * (weight + weight_bias), row by row. Strides count elements. */
#ifndef PARBAKE_NORM_RMSNORM_PARAMS_H
#define PARBAKE_NORM_RMSNORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_rmsnorm_params {
    const void* x;      /* [rows, hidden] */
    const void* weight; /* [hidden] */
    void* out;          /* [rows, hidden]; may be x itself with the same stride, otherwise overlaps nothing */
    pb_i64 x_stride;    /* at least hidden */
    pb_i64 out_stride;  /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    float eps;
    float weight_bias; /* 0, or 1 where the weights are stored as their difference from one */
} pb_rmsnorm_params;

#endif
