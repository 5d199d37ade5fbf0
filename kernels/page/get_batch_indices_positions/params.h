/* For each of nnz appended tokens the request that it belongs to and its position there. Request b has the tokens from
 * append_indptr[b] to before append_indptr[b + 1], and they are the last of its seq_lens[b]:
 *   position = t - append_indptr[b + 1] + seq_lens[b]
 * A token of no request gets -1 for both, so that an append passes it over. append_indptr does not decrease. */
#ifndef PARBAKE_PAGE_GET_BATCH_INDICES_POSITIONS_PARAMS_H
#define PARBAKE_PAGE_GET_BATCH_INDICES_POSITIONS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_get_batch_indices_positions_params {
    const void* append_indptr; /* i32 [batch + 1] */
    const void* seq_lens;      /* i32 [batch] */
    void* batch_indices;       /* i32 [nnz] */
    void* positions;           /* i32 [nnz] */
    pb_i32 nnz;
    pb_i32 batch;
} pb_get_batch_indices_positions_params;

#endif
