/* Rows of `out` belong to groups, and each group has its own matrix: out = activation(a * b[group]^T * scales + bias[group]).
 * Strides of operands and results count bytes, those of scales elements. */
#ifndef PARBAKE_GEMM_GROUP_MM_PARAMS_H
#define PARBAKE_GEMM_GROUP_MM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_group_mm_params {
    pb_tensor_map a_map; /* of a and b, for Hopper's copy engine: boxes of a tile's rows */
    pb_tensor_map b_map;
    const void* a;       /* [tokens, k] */
    const void* b;       /* [weights, n, k] */
    void* out;           /* [m, n]; rows of no group stay as they are */
    const void* bias;    /* [weights, n] of the type of out, or absent */
    const void* a_scale; /* f32, or absent */
    const void* b_scale; /* f32, or absent */
    const void* indptr;  /* i32 [groups + 1]: where the rows of each group begin; or absent */
    const void* lengths; /* i32 [groups]: of group g rows g * most, g * most + 1 ..; or absent */
    const void* ids;     /* i32 [m]: the group of each row, negative for none; or absent */
    const void* rows;    /* i32 [m]: the row of a for each row of out, outside for none; or absent: the same */
    const void* weights; /* i32 [groups]: the matrix of each group; or absent: the same */
    pb_i64 a_row;
    pb_i64 a_k;
    pb_i64 b_group;
    pb_i64 b_row;
    pb_i64 b_k;
    pb_i64 out_row;
    pb_i64 bias_group;  /* in elements */
    pb_i64 a_scale_row; /* from factor to factor along tokens; 0 if there is one */
    pb_i64 a_scale_k;   /* from block to block of 128 along k; 0 if there is one */
    pb_i64 b_scale_group;
    pb_i64 b_scale_row;
    pb_i64 b_scale_k;
    pb_i32 m;
    pb_i32 n;
    pb_i32 k;
    pb_i32 tokens;
    pb_i32 groups;
    pb_i32 matrices; /* of b */
    pb_i32 most;
    pb_i32 n_tiles;
    pb_i32 a_scale_shift; /* rows that share a factor, as a power of two: 0 or 7 */
    pb_i32 b_scale_shift;
    pb_i32 activation; /* 0 none, 1 silu, 2 gelu, 3 gelu_tanh, 4 relu */
    pb_i32 wide;       /* whether four results side by side lie at a multiple of their size */
} pb_group_mm_params;

#endif
