/* k = for each token and head, the columns of k_nope, then those of k_rope, which all heads share; bytes as they are.
 * Strides count bytes. */
#ifndef PARBAKE_PAGE_CONCAT_MLA_K_PARAMS_H
#define PARBAKE_PAGE_CONCAT_MLA_K_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_concat_mla_k_params {
    void* k;            /* [tokens, heads, nope_dim + rope_dim]; overlaps nothing */
    const void* k_nope; /* [tokens, heads, nope_dim] */
    const void* k_rope; /* [tokens, 1, rope_dim] */
    pb_i64 k_stride;    /* from token to token */
    pb_i64 k_head_stride;
    pb_i64 nope_stride;
    pb_i64 nope_head_stride;
    pb_i64 rope_stride;
    pb_u32 threads; /* tokens * groups * units */
    pb_i32 heads;
    pb_i32 groups;     /* threads that share the heads, at least heads / 4 */
    pb_i32 units;      /* accesses of a head of k */
    pb_i32 nope_units; /* those of them to k_nope */
} pb_concat_mla_k_params;

#endif
