#pragma once
#include "parbake/abi.h"

typedef struct pb_attention_params {
    const void *q, *k, *v; /* [batch, heads, seq, D], dense in D */
    void* o;
    float* lse; /* [batch, q_heads, sq] or null: natural log */
    pb_i64 q_batch, q_head, q_row, kv_batch, kv_head, kv_row, o_batch, o_head, o_row; /* strides in elements */
    pb_i32 q_heads, kv_heads, sq, skv;
    float scale_log2; /* softmax scale * log2(e) */
} pb_attention_params;
