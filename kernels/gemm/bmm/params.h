/* out = activation(a * b^T * scales + bias), batch by batch. Strides of operands and results count bytes, those of scales
 * elements. */
#ifndef PARBAKE_GEMM_BMM_PARAMS_H
#define PARBAKE_GEMM_BMM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_bmm_params {
    const void* a;       /* [batch, m, k] */
    const void* b;       /* [batch, n, k] */
    void* out;           /* [batch, m, n] */
    const void* bias;    /* [n] of the type of out, or absent */
    const void* a_scale; /* f32, or absent */
    const void* b_scale; /* f32, or absent */
    void* partial;       /* f32 [batch * tiles, splits, rows * columns of a tile], where splits > 1 */
    void* tickets;       /* u32 [batch * tiles], likewise: 0 before and after */
    pb_i64 a_batch;
    pb_i64 a_row;
    pb_i64 a_k;
    pb_i64 b_batch;
    pb_i64 b_row;
    pb_i64 b_k;
    pb_i64 out_batch;
    pb_i64 out_row;
    pb_i64 a_scale_batch;
    pb_i64 a_scale_row; /* from factor to factor along m; 0 if there is one */
    pb_i64 a_scale_k;   /* from block to block of 128 along k; 0 if there is one */
    pb_i64 b_scale_batch;
    pb_i64 b_scale_row;
    pb_i64 b_scale_k;
    pb_i32 m;
    pb_i32 n;
    pb_i32 k;
    pb_i32 batch;
    pb_i32 m_tiles;
    pb_i32 n_tiles;
    pb_i32 splits;        /* pieces along k */
    pb_i32 stages;        /* of a piece */
    pb_i32 a_scale_shift; /* rows that share a factor, as a power of two: 0 or 7 */
    pb_i32 b_scale_shift;
    pb_i32 activation; /* 0 none, 1 silu, 2 gelu, 3 gelu_tanh, 4 relu */
    pb_i32 wide;       /* whether four results side by side lie at a multiple of their size */
} pb_bmm_params;

#endif
