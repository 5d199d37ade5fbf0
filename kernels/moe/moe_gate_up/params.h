/* out = activation(x * gate^T + bias) * (x * up^T + bias), row by row with the matrices of its expert. Strides of operands
 * and results count bytes. */
#ifndef PARBAKE_MOE_MOE_GATE_UP_PARAMS_H
#define PARBAKE_MOE_MOE_GATE_UP_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_moe_gate_up_params {
    pb_tensor_map w_map; /* of w, for Hopper's copy engine: boxes of 128 rows */
    const void* x;      /* [tokens, hidden], at multiples of 16 bytes */
    const void* w;      /* [experts, 2 * inner, hidden], likewise */
    const void* bias;   /* [experts, 2 * inner], or absent */
    const void* indptr; /* i32 [experts + 1]: where the rows of each expert begin */
    const void* rows;   /* i32 [m]: the row of x of each row of out, outside for none */
    void* out;          /* [m, inner]; rows of no expert stay as they are */
    pb_i64 x_row;
    pb_i64 w_expert;
    pb_i64 w_row;
    pb_i64 bias_expert;
    pb_i64 out_row;
    pb_i32 m;
    pb_i32 groups; /* experts */
    pb_i32 tokens;
    pb_i32 n_tiles;
    pb_i32 hidden;
    pb_i32 inner;
    pb_i32 activation; /* 0 silu, 1 gelu, 2 gelu_tanh, 3 clamped */
    float limit;
    pb_i32 wide; /* whether four results side by side lie at a multiple of their size */
} pb_moe_gate_up_params;

#endif
