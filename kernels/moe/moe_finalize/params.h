/* out[t] = sum over j of weights[t, j] * x[places[t, j]], in f32 and in the order of j. Strides count elements. */
#ifndef PARBAKE_MOE_MOE_FINALIZE_PARAMS_H
#define PARBAKE_MOE_MOE_FINALIZE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_moe_finalize_params {
    const void* x;       /* [capacity, hidden] */
    const void* places;  /* i32 [tokens, k]; negative: adds nothing */
    const void* weights; /* f32 [tokens, k] */
    void* out;           /* [tokens, hidden]; overlaps nothing */
    pb_i64 x_stride;
    pb_i64 places_stride;
    pb_i64 weights_stride;
    pb_i64 out_stride;
    pb_i64 units; /* accesses of all tokens */
    pb_i32 k;
    pb_u32 row;   /* accesses of a token */
    pb_u32 magic; /* divide by row, as math.cuh says */
    pb_u32 shift;
} pb_moe_finalize_params;

#endif
