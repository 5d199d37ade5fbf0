/* The page table's entries of the k greatest scores of each row. Strides count elements.
 *
 * Row i has lengths[i] scores, taken as 0 if less and as max_len if more. Order and ties as in top_k. The entries of
 * page-table row row_to_batch[i], or i, stand in the order of the scores' indices; the rest is -1. A row whose batch is
 * not in the table is all -1. */
#ifndef PARBAKE_SAMPLING_TOP_K_PAGE_TABLE_TRANSFORM_PARAMS_H
#define PARBAKE_SAMPLING_TOP_K_PAGE_TABLE_TRANSFORM_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_top_k_page_table_transform_params {
    const void* input;            /* [rows, max_len] */
    const pb_i32* src_page_table; /* [batch, max_len] */
    const pb_i32* lengths;        /* [rows] */
    const pb_i32* row_to_batch;   /* [rows], or null: row i belongs to batch i */
    pb_i32* out;                  /* [rows, k] */
    pb_i64 input_stride;
    pb_i64 table_stride;
    pb_i64 out_stride;
    pb_i64 batch;
    pb_i32 max_len;
    pb_i32 k;
    pb_i32 tie_bits; /* that hold max_len - 1 */
    pb_i32 late;
    pb_i32 list;     /* bytes of dynamic shared memory before the keys: 8 for each of 1024 columns or what there are */
    pb_i32 resident; /* vectors of keys that the dynamic shared memory holds */
} pb_top_k_page_table_transform_params;

#endif
