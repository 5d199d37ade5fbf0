/* Rotary embedding of queries and keys. Pair i of a head, of rotary_dim / 2 pairs, is columns (2i, 2i + 1) if
 * interleave, else (i, i + rotary_dim / 2); columns from rotary_dim on are copied. With position and head given,
 *   x' = x cos(angle) - y sin(angle),  y' = y cos(angle) + x sin(angle)
 *   angle = position * frequency: f32 of both, one product, rounded to f32
 *   frequency = f32(theta^(-2i/rotary_dim) / scale), or with Llama 3.1 scaling, in f32,
 *     g = f32(theta^(-2i/rotary_dim)),  smooth = clamp(fma(g, smooth_slope, smooth_offset), 0, 1)
 *     frequency = g * fma(smooth, 1 - 1/scale, 1/scale)
 * Sine and cosine are right to 1.5e-7 for angles up to 2^52. Position of token t: pos_ids[t]; or, with b the segment
 * for which indptr[b] <= t < indptr[b + 1], offsets[b] + t - indptr[b], and 0 for a token in no segment. Positions may
 * be negative. NaN and infinity spread to both elements of their pair. Strides count elements. */
#ifndef PARBAKE_ROPE_APPLY_ROPE_PARAMS_H
#define PARBAKE_ROPE_APPLY_ROPE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_apply_rope_params {
    const void* q;       /* [tokens, q_heads, head_dim] */
    const void* k;       /* [tokens, heads - q_heads, head_dim] */
    void* q_out;         /* as q; may be q itself with the same strides, otherwise overlaps nothing */
    void* k_out;         /* as k; the same */
    const void* pos_ids; /* [tokens], or null */
    const void* indptr;  /* [batch + 1], not null if pos_ids is */
    const void* offsets; /* [batch], the same */
    pb_i64 q_stride;     /* from token to token */
    pb_i64 q_head_stride;
    pb_i64 k_stride;
    pb_i64 k_head_stride;
    pb_i64 q_out_stride;
    pb_i64 q_out_head_stride;
    pb_i64 k_out_stride;
    pb_i64 k_out_head_stride;
    pb_u32 threads; /* tokens * groups * units */
    pb_i32 batch;
    pb_i32 q_heads;
    pb_i32 heads; /* of q and k together */
    pb_i32 head_dim;
    pb_i32 rotary_dim;
    pb_i32 interleave; /* 0 or 1 */
    pb_i32 groups;     /* threads that share the heads of a token, at least heads / 4 */
    pb_i32 units;      /* threads that share a head: those that turn, then those that copy */
    pb_i32 turning;    /* rotary_dim / 2 over the values of an access */
    float smooth_slope;  /* old_context_len / (2 pi (high_freq_factor - low_freq_factor)); without scaling 0 */
    float smooth_offset; /* -low_freq_factor / (high_freq_factor - low_freq_factor); without scaling 1 */
    float slowest;       /* 1 / scale; without scaling 1 */
    /* theta^(-2i/rotary_dim), over scale if there is no Llama 3.1 scaling, is coarse[i / 16] * fine[i % 16]; each is a
     * high part and what f32 leaves of it. */
    float coarse[32];
    float fine[32];
} pb_apply_rope_params;

#endif
