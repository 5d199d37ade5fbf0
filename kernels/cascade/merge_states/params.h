/* Any number of attention states of each head made one, in their order. cascade/merge.cuh has the formula, and what
 * becomes of -inf, +inf, NaN, and no state at all. Strides count elements. */
#ifndef PARBAKE_CASCADE_MERGE_STATES_PARAMS_H
#define PARBAKE_CASCADE_MERGE_STATES_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_merge_states_params {
    void* v_merged;         /* [rows, heads, head_dim] */
    void* s_merged;         /* f32 [rows, heads]; outputs overlap nothing */
    const void* v;          /* [rows, states, heads, head_dim] */
    const void* s;          /* f32 [rows, states, heads] */
    pb_i64 v_merged_stride; /* from row to row */
    pb_i64 v_merged_head_stride;
    pb_i64 s_merged_stride;
    pb_i64 s_merged_head_stride;
    pb_i64 v_stride;
    pb_i64 v_state_stride;
    pb_i64 v_head_stride;
    pb_i64 s_stride;
    pb_i64 s_state_stride;
    pb_i64 s_head_stride;
    pb_u32 items;  /* rows * groups */
    pb_i32 groups; /* heads */
    pb_i32 states;
    pb_i32 lanes; /* threads that share a head: a power of two, at most 32 */
    pb_i32 units; /* accesses of a head */
} pb_merge_states_params;

#endif
