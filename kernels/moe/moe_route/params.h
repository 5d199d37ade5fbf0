/* Which experts each token goes to. op.toml says what is chosen and what the weights are. Strides count elements. */
#ifndef PARBAKE_MOE_MOE_ROUTE_PARAMS_H
#define PARBAKE_MOE_MOE_ROUTE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_moe_route_params {
    const void* logits; /* [tokens, experts] */
    const void* bias;   /* f32 [experts], or absent */
    void* weights;      /* f32 [tokens, k] */
    void* ids;          /* i32 [tokens, k] */
    pb_i64 logits_stride;
    pb_i64 weights_stride;
    pb_i64 ids_stride;
    pb_i64 tokens;
    pb_i32 experts;
    pb_i32 k;       /* at most 32 */
    pb_i32 scoring; /* 0 softmax, 1 sigmoid, 2 none */
    pb_i32 renormalize;
    pb_i32 groups;      /* at most 32, and of one size */
    pb_i32 kept_groups; /* they have at least k experts */
    pb_i32 group_best;  /* 1 or 2 */
    pb_u32 magic;       /* divide by the size of a group, as math.cuh says */
    pb_u32 shift;
    float scale;
} pb_moe_route_params;

#endif
