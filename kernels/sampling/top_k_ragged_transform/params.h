/* Where the k greatest scores of each row lie in a ragged array. Strides count elements.
 *
 * Row i has lengths[i] scores, taken as 0 if less and as max_len if more. Order and ties as in top_k. What is written is
 * the index in the row plus offsets[i], in the order of the indices; the rest is -1. */
#ifndef PARBAKE_SAMPLING_TOP_K_RAGGED_TRANSFORM_PARAMS_H
#define PARBAKE_SAMPLING_TOP_K_RAGGED_TRANSFORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_top_k_ragged_transform_params {
    const void* input;     /* [rows, max_len] */
    const pb_i32* offsets; /* [rows] */
    const pb_i32* lengths; /* [rows] */
    pb_i32* out;           /* [rows, k] */
    pb_i64 input_stride;
    pb_i64 out_stride;
    pb_i32 max_len;
    pb_i32 k;
    pb_i32 tie_bits; /* that hold max_len - 1 */
    pb_i32 late;
    pb_i32 list;     /* bytes of dynamic shared memory before the keys: 8 for each of 1024 columns or what there are */
    pb_i32 resident; /* vectors of keys that the dynamic shared memory holds */
} pb_top_k_ragged_transform_params;

#endif
