/* Compressed keys and values, and the rotary part of keys, into the pages of two caches, bytes as they are.
 * page/slot.cuh says which slot a token has; one without a slot goes nowhere. Two tokens of one slot are an error
 * nobody sees: either may win. Strides count bytes. */
#ifndef PARBAKE_PAGE_APPEND_PAGED_MLA_KV_CACHE_PARAMS_H
#define PARBAKE_PAGE_APPEND_PAGED_MLA_KV_CACHE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_append_paged_mla_kv_cache_params {
    const void* ckv;   /* [tokens, ckv_dim] */
    const void* kpe;   /* [tokens, kpe_dim] */
    void* ckv_cache;   /* [pages, page_size, ckv_dim]; may lie between the elements of kpe_cache */
    void* kpe_cache;   /* [pages, page_size, kpe_dim] */
    pb_i64 ckv_stride; /* from token to token */
    pb_i64 kpe_stride;
    pb_i64 ckv_page_stride;
    pb_i64 ckv_entry_stride;
    pb_i64 kpe_page_stride;
    pb_i64 kpe_entry_stride;
    const void* batch_indices; /* i32 [tokens] */
    const void* positions;     /* i32 [tokens] */
    const void* kv_indices;    /* i32 [kv_pages] */
    const void* kv_indptr;     /* i32 [batch + 1] */
    pb_i64 kv_pages;
    pb_u32 tokens;
    pb_u32 threads; /* rows * units */
    pb_u32 rows;    /* threads that share the tokens, at least tokens / 4 */
    pb_i32 batch;
    pb_i32 pages;
    pb_i32 page_size;
    pb_i32 units;     /* accesses of a token */
    pb_i32 ckv_units; /* those of them to ckv */
} pb_append_paged_mla_kv_cache_params;

#endif
