/* Multi-head latent attention: all heads of a request see the same keys, softmax(scale (q_nope ckv^T + q_pe kpe^T)) ckv,
 * which lie in pages. attention_plan shares the work out. Strides count bytes. */
#ifndef PARBAKE_ATTENTION_MLA_ATTENTION_PARAMS_H
#define PARBAKE_ATTENTION_MLA_ATTENTION_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_mla_attention_params {
    void* o;            /* [tokens, heads, 512] */
    void* lse;          /* f32 [tokens, heads], or absent: log2 of the sum of exponentials */
    const void* q_nope; /* [tokens, heads, 512] */
    const void* q_pe;   /* [tokens, heads, 64] */
    const void* ckv;    /* [pages, page_size, 512] */
    const void* kpe;    /* [pages, page_size, 64] */
    void* plan;         /* i32, see attention/work.cuh */
    void* partial;      /* f32 [slots, rows * (512 + 1)] */
    pb_i64 o_stride;    /* from token to token */
    pb_i64 o_head_stride;
    pb_i64 lse_stride;
    pb_i64 q_nope_stride;
    pb_i64 q_nope_head_stride;
    pb_i64 q_pe_stride;
    pb_i64 q_pe_head_stride;
    pb_u32 ckv_stride; /* from page to page; those of pages and entries are below 2^32 */
    pb_u32 ckv_entry_stride;
    pb_u32 kpe_stride;
    pb_u32 kpe_entry_stride;
    const void* kv_indices; /* i32 [kv_pages], or absent: page i is page i */
    pb_i64 pages;
    pb_i64 slots; /* of partial */
    pb_u32 page_multiply;
    pb_i32 page_shift;
    pb_u32 group_multiply;
    pb_i32 group_shift;
    pb_i32 tokens;
    pb_i32 page_size;
    pb_i32 group;    /* heads */
    pb_i32 kv_heads; /* 1 */
    pb_i32 causal;
    float scale_log2; /* of scores, times log2(e) */
} pb_mla_attention_params;

#endif
