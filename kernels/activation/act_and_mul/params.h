/* out = activation(x[:, :hidden]) * x[:, hidden:], row by row, in f32, rounded once. NaN gives NaN, and so does an
 * activation of -inf. Strides count elements. */
#ifndef PARBAKE_ACTIVATION_ACT_AND_MUL_PARAMS_H
#define PARBAKE_ACTIVATION_ACT_AND_MUL_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_act_and_mul_params {
    const void* x;     /* [rows, 2 * hidden] */
    void* out;         /* [rows, hidden]; overlaps nothing */
    pb_i64 x_stride;   /* at least 2 * hidden */
    pb_i64 out_stride; /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    pb_u32 parts; /* accesses that a row of out takes */
    pb_u32 magic; /* divide by parts, as activation.cuh says */
    pb_u32 shift;
} pb_act_and_mul_params;

#endif
