/* An attention state of each head, made one with another in its place, in the rows that the mask names.
 * cascade/merge.cuh has the formula, and what becomes of -inf, +inf and NaN. Rows whose mask is 0 stay as they are,
 * and their other state is not looked at. Strides count elements. */
#ifndef PARBAKE_CASCADE_MERGE_STATE_IN_PLACE_PARAMS_H
#define PARBAKE_CASCADE_MERGE_STATE_IN_PLACE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_merge_state_in_place_params {
    void* v;           /* [rows, heads, head_dim]; overlaps nothing but v_a */
    void* s;           /* f32 [rows, heads]; overlaps nothing but s_a */
    const void* v_a;   /* v itself */
    const void* s_a;   /* s itself */
    const void* v_b;   /* [rows, heads, head_dim] */
    const void* s_b;   /* f32 [rows, heads] */
    const void* mask;  /* bool [rows], or null: all rows */
    pb_i64 v_stride;   /* from row to row */
    pb_i64 v_head_stride;
    pb_i64 s_stride;
    pb_i64 s_head_stride;
    pb_i64 v_a_stride; /* those of v */
    pb_i64 v_a_head_stride;
    pb_i64 s_a_stride; /* those of s */
    pb_i64 s_a_head_stride;
    pb_i64 v_b_stride;
    pb_i64 v_b_head_stride;
    pb_i64 s_b_stride;
    pb_i64 s_b_head_stride;
    pb_u32 items; /* rows * groups */
    pb_i32 heads;
    pb_i32 groups; /* threads that share the heads of a row, at least heads / 2 */
    pb_i32 lanes;  /* threads that share a head: a power of two, at most 32 */
    pb_i32 units;  /* accesses of a head */
} pb_merge_state_in_place_params;

#endif
