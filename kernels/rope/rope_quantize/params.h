/* Queries and keys to FP8: the rotary part of each head is turned, then all is multiplied by a scale and rounded, in
 * f32 with one rounding at the end, which saturates. Sines, cosines and pairs are as in rope_cos_sin_cache; a token
 * whose position has no row of the cache is not turned. NaN becomes 0x7f. The parts are q_rope, k_rope, q_nope,
 * k_nope, in this order; one without columns or heads has no threads. Strides count elements. */
#ifndef PARBAKE_ROPE_ROPE_QUANTIZE_PARAMS_H
#define PARBAKE_ROPE_ROPE_QUANTIZE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_rope_quantize_params {
    const void* from[4];   /* [tokens, heads, columns] */
    void* to[4];           /* the same; overlaps nothing */
    pb_i64 from_stride[4]; /* from token to token */
    pb_i64 from_head_stride[4];
    pb_i64 to_stride[4];
    pb_i64 to_head_stride[4];
    const void* pos_ids; /* [tokens] */
    const void* cache;   /* f32 [max_position, rotary_dim]: cosines, then sines */
    pb_i64 cache_stride;
    pb_i64 max_position; /* rows of the cache */
    pb_i32 first[4];     /* the first thread of each part, of those of a token */
    pb_i32 units[4];     /* threads that share a head */
    pb_i32 groups[4];    /* threads that share the heads, at least heads / 2 */
    pb_i32 heads[4];
    pb_i32 columns[4];
    pb_u32 threads; /* tokens * items */
    pb_i32 items;   /* threads of a token */
    pb_i32 rotary_dim;
    pb_i32 interleave; /* 0 or 1 */
    float scale_q;
    float scale_kv;
} pb_rope_quantize_params;

#endif
