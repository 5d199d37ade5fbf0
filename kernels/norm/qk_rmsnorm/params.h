/* In place, head by head: q = q / sqrt(mean(q^2) + eps) * (q_weight + weight_bias), the mean over the head's elements, and
 * k alike with k_weight. Strides count elements. */
#ifndef PARBAKE_NORM_QK_RMSNORM_PARAMS_H
#define PARBAKE_NORM_QK_RMSNORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_qk_rmsnorm_params {
    void* q;              /* [tokens, q_heads, head_dim], in and out */
    void* k;              /* [tokens, kv_heads, head_dim], in and out; shares no element with q */
    const void* q_weight; /* [head_dim] */
    const void* k_weight; /* [head_dim] */
    pb_i64 q_token_stride;
    pb_i64 q_head_stride;
    pb_i64 k_token_stride;
    pb_i64 k_head_stride;
    pb_i64 tokens;
    pb_i32 q_heads;
    pb_i32 kv_heads;
    pb_i32 head_dim;
    float eps;
    float weight_bias; /* 0, or 1 where the weights are stored as their difference from one */
} pb_qk_rmsnorm_params;

#endif
