/* Rotary embedding of queries and keys with sines and cosines from a cache. Pair i of a head, of rotary_dim / 2 pairs,
 * is columns (2i, 2i + 1) if interleave, else (i, i + rotary_dim / 2); columns from rotary_dim on are copied. With c
 * and s the f32 values cache[position, i] and cache[position, rotary_dim / 2 + i],
 *   x' = x c - y s,  y' = y c + x s
 * in f32, rounded once. A token whose position has no row is copied. NaN and infinity spread to both elements of their
 * pair. Strides count elements. */
#ifndef PARBAKE_ROPE_ROPE_COS_SIN_CACHE_PARAMS_H
#define PARBAKE_ROPE_ROPE_COS_SIN_CACHE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_rope_cos_sin_cache_params {
    const void* q;         /* [tokens, q_heads, head_dim] */
    const void* k;         /* [tokens, heads - q_heads, head_dim] */
    void* q_out;           /* as q; may be q itself with the same strides, otherwise overlaps nothing */
    void* k_out;           /* as k; the same */
    const void* positions; /* [tokens] */
    const void* cache;     /* f32 [max_position, rotary_dim]: cosines, then sines */
    pb_i64 q_stride;       /* from token to token */
    pb_i64 q_head_stride;
    pb_i64 k_stride;
    pb_i64 k_head_stride;
    pb_i64 q_out_stride;
    pb_i64 q_out_head_stride;
    pb_i64 k_out_stride;
    pb_i64 k_out_head_stride;
    pb_i64 cache_stride;
    pb_i64 max_position; /* rows of the cache */
    pb_u32 threads;      /* tokens * groups * units */
    pb_i32 q_heads;
    pb_i32 heads; /* of q and k together */
    pb_i32 head_dim;
    pb_i32 rotary_dim;
    pb_i32 interleave; /* 0 or 1 */
    pb_i32 groups;     /* threads that share the heads of a token, at least heads / 4 */
    pb_i32 units;      /* threads that share a head: those that turn, then those that copy */
    pb_i32 turning;    /* rotary_dim / 2 over the values of an access */
} pb_rope_cos_sin_cache_params;

#endif
