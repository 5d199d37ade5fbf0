/* Attention of the queries of each request over its keys and values, which lie in pages: softmax(scale q k^T) v.
 * attention_plan shares the work out. Strides count bytes. */
#ifndef PARBAKE_ATTENTION_BATCH_ATTENTION_PARAMS_H
#define PARBAKE_ATTENTION_BATCH_ATTENTION_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_batch_attention_params {
    void* o;         /* [tokens, kv_heads * group, vo_dim] */
    void* lse;       /* f32 [tokens, kv_heads * group], or absent: log2 of the sum of exponentials */
    const void* q;   /* [tokens, kv_heads * group, qk_dim] */
    const void* k;   /* [pages, page_size, kv_heads, qk_dim] */
    const void* v;   /* [pages, page_size, kv_heads, vo_dim] */
    void* plan;      /* i32, see attention/work.cuh */
    void* partial;   /* f32 [slots, rows * (vo_dim + 1)] */
    pb_i64 o_stride; /* from token to token */
    pb_i64 o_head_stride;
    pb_i64 lse_stride;
    pb_i64 q_stride;
    pb_i64 q_head_stride;
    pb_i64 k_head_stride;
    pb_i64 v_head_stride;
    pb_u32 k_stride; /* from page to page; those of pages and entries are below 2^32 */
    pb_u32 k_entry_stride;
    pb_u32 v_stride;
    pb_u32 v_entry_stride;
    const void* kv_indices;       /* i32 [kv_pages], or absent: page i is page i */
    const void* sinks;            /* f32 [kv_heads * group], or absent */
    const void* mask;             /* bits, the lowest first, or absent; of request b: query by query its keys */
    const void* mask_indptr;      /* i32 [batch + 1]: the byte where those of each request begin */
    const void* alibi_slopes;     /* f32 [kv_heads * group], or absent */
    pb_i64 kv_pages;
    pb_i64 pages;
    pb_i64 slots; /* of partial */
    pb_u32 page_multiply;
    pb_i32 page_shift;
    pb_u32 group_multiply;
    pb_i32 group_shift;
    pb_i32 tokens;
    pb_i32 page_size;
    pb_i32 group;
    pb_i32 kv_heads;
    pb_i32 causal;
    pb_i32 window;     /* keys before its own that a query sees; negative: all */
    pb_i32 rotate;     /* whether queries and keys turn by their positions */
    float scale_log2;  /* of scores, times log2(e) */
    float v_scale;     /* of the output */
    float cap_in;      /* of scores, times 2 log2(e) / soft cap */
    float cap_out;     /* soft cap times log2(e); 0: none */
    float coarse[16];  /* frequencies 0, 16, 32 ... of eight, each an f32 and what that leaves */
    float fine[32];    /* what the others are multiplied with: sixteen, likewise */
    pb_u64 user[8];    /* values of a snippet's parameters, by their names: addresses, or the bits of numbers */
} pb_batch_attention_params;

#endif
