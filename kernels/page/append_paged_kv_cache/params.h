/* Keys and values of tokens into the pages of a cache, bytes as they are. page/slot.cuh says which slot a token has;
 * one without a slot goes nowhere. Two tokens of one slot are an error nobody sees: either may win. Strides count
 * bytes. */
#ifndef PARBAKE_PAGE_APPEND_PAGED_KV_CACHE_PARAMS_H
#define PARBAKE_PAGE_APPEND_PAGED_KV_CACHE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_append_paged_kv_cache_params {
    const void* key;    /* [tokens, heads, head_dim] */
    const void* value;  /* the same */
    void* k_cache;      /* [pages, page_size, heads, head_dim]; may lie between the elements of v_cache */
    void* v_cache;      /* the same */
    pb_i64 key_stride;  /* from token to token */
    pb_i64 key_head_stride;
    pb_i64 value_stride;
    pb_i64 value_head_stride;
    pb_i64 k_stride; /* from page to page */
    pb_i64 k_entry_stride;
    pb_i64 k_head_stride;
    pb_i64 v_stride;
    pb_i64 v_entry_stride;
    pb_i64 v_head_stride;
    const void* batch_indices; /* i32 [tokens] */
    const void* positions;     /* i32 [tokens] */
    const void* kv_indices;    /* i32 [kv_pages] */
    const void* kv_indptr;     /* i32 [batch + 1] */
    pb_i64 kv_pages;
    pb_u32 threads; /* tokens * groups * units */
    pb_i32 batch;
    pb_i32 pages;
    pb_i32 page_size;
    pb_i32 heads;
    pb_i32 groups; /* threads that share the heads, at least heads / 4 */
    pb_i32 units;  /* accesses of a head */
} pb_append_paged_kv_cache_params;

#endif
