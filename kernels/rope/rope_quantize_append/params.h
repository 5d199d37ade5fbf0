/* Queries, keys and values to FP8, keys and values into the pages of a cache. The rotary part of each head is turned,
 * then all is multiplied by a scale and rounded, in f32 with one rounding at the end, which saturates. Sines, cosines
 * and pairs are as in rope_cos_sin_cache; a token whose position has no row of the cache of sines is not turned. NaN
 * becomes 0x7f. Keys and values of a token go to its slot, page/slot.cuh says which; those of a token without one go
 * nowhere, and its queries are as any other's. Two tokens of one slot are an error nobody sees: either may win. The
 * parts are q_rope, k_rope, q_nope, k_nope, v, in this order; one without columns or heads has no threads. Strides
 * count elements. */
#ifndef PARBAKE_ROPE_ROPE_QUANTIZE_APPEND_PARAMS_H
#define PARBAKE_ROPE_ROPE_QUANTIZE_APPEND_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_rope_quantize_append_params {
    const void* from[5];   /* [tokens, heads, columns] */
    void* to[5];           /* q: [tokens, heads, columns]; k, v: [pages, page_size, heads, columns] */
    pb_i64 from_stride[5]; /* from token to token */
    pb_i64 from_head_stride[5];
    pb_i64 to_stride[5];       /* from token to token, or from page to page */
    pb_i64 to_entry_stride[5]; /* from entry to entry of a page */
    pb_i64 to_head_stride[5];
    const void* pos_ids; /* [tokens] */
    const void* cache;   /* f32 [max_position, rotary_dim]: cosines, then sines */
    pb_i64 cache_stride;
    pb_i64 max_position;       /* rows of the cache */
    const void* batch_indices; /* i32 [tokens] */
    const void* positions;     /* i32 [tokens] */
    const void* kv_indices;    /* i32 [kv_pages] */
    const void* kv_indptr;     /* i32 [batch + 1] */
    pb_i64 kv_pages;
    pb_i32 first[5];  /* the first thread of each part, of those of a token */
    pb_i32 units[5];  /* threads that share a head */
    pb_i32 groups[5]; /* threads that share the heads, at least heads / 2 */
    pb_i32 heads[5];
    pb_i32 columns[5];
    pb_u32 threads; /* tokens * items */
    pb_i32 items;   /* threads of a token */
    pb_i32 rotary_dim;
    pb_i32 interleave; /* 0 or 1 */
    pb_i32 batch;
    pb_i32 pages;
    pb_i32 page_size;
    float scale_q;
    float scale_kv;
} pb_rope_quantize_append_params;

#endif
