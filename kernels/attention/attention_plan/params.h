/* Shares the work of batch_attention out among blocks; attention/work.cuh has the layout of the plan. */
#ifndef PARBAKE_ATTENTION_ATTENTION_PLAN_PARAMS_H
#define PARBAKE_ATTENTION_ATTENTION_PLAN_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_attention_plan_params {
    void* plan;                    /* i32 [words] */
    const void* qo_indptr;         /* i32 [batch + 1], or absent: request b has tokens b*qo_len to before (b+1)*qo_len */
    const void* kv_indptr;         /* i32 [batch + 1], in pages */
    const void* kv_last_page_len;  /* i32 [batch], or absent: every page is full */
    pb_i32 batch;
    pb_i32 qo_len; /* tokens of each request, where qo_indptr is absent */
    pb_i32 page_size;
    pb_i32 group;    /* heads of queries for each head of keys */
    pb_i32 kv_heads;
    pb_i32 rows;     /* of a tile of queries */
    pb_i32 keys;     /* of a tile of keys */
    pb_i32 blocks;   /* that share the work */
    pb_i32 split;    /* tiles of keys in a piece; 0: blocks cut */
    pb_i32 capacity; /* items that the plan has room for */
    pb_i32 causal;
    pb_i32 window; /* keys before its own that a query sees; negative: all */
} pb_attention_plan_params;

#endif
