/* The first half of experts in 8 bits: h = activation(x * gate^T) * (x * up^T) row by row with the matrices of its expert,
 * out and scale from each group of 128 columns of h as parbake/scale.cuh says. Strides of operands count bytes, those of
 * scales elements. */
#ifndef PARBAKE_MOE_MOE_GATE_UP_QUANT_PARAMS_H
#define PARBAKE_MOE_MOE_GATE_UP_QUANT_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_moe_gate_up_quant_params {
    pb_tensor_map w_map; /* of w, for Hopper's copy engine: boxes of 128 rows */
    const void* x;       /* e4m3 [tokens, hidden], at multiples of 16 bytes */
    const void* x_scale; /* f32 [tokens, hidden / 128] */
    const void* w;       /* e4m3 [experts, 2 * inner, hidden], at multiples of 16 bytes */
    const void* w_scale; /* f32 [experts, 2 * inner / 128, hidden / 128] */
    const void* indptr;  /* i32 [experts + 1]: where the rows of each expert begin */
    const void* rows;    /* i32 [m]: the row of x of each row of out, outside for none */
    void* out;           /* e4m3 [m, inner]; rows of no expert stay as they are */
    void* scale;         /* f32 [m, inner / 128], likewise */
    pb_i64 x_row;
    pb_i64 x_scale_row;
    pb_i64 x_scale_k;
    pb_i64 w_expert;
    pb_i64 w_row;
    pb_i64 w_scale_expert;
    pb_i64 w_scale_row;
    pb_i64 w_scale_k;
    pb_i64 out_row;
    pb_i64 scale_row;
    pb_i64 scale_group;
    pb_i32 m;
    pb_i32 groups; /* experts */
    pb_i32 tokens;
    pb_i32 n_tiles;
    pb_i32 hidden;
    pb_i32 inner;      /* a multiple of 128 */
    pb_i32 activation; /* 0 silu, 1 gelu, 2 gelu_tanh, 3 clamped */
    float limit;
    float eps; /* least amax that counts, at least 1e-30 */
} pb_moe_gate_up_quant_params;

#endif
