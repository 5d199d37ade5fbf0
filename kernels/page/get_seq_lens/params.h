/* Tokens of each request of a paged cache: seq_lens[b] = max(pages of b - 1, 0) * page_size + kv_last_page_len[b],
 * where pages of b = kv_indptr[b + 1] - kv_indptr[b]. */
#ifndef PARBAKE_PAGE_GET_SEQ_LENS_PARAMS_H
#define PARBAKE_PAGE_GET_SEQ_LENS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_get_seq_lens_params {
    const void* kv_indptr;        /* i32 [batch + 1] */
    const void* kv_last_page_len; /* i32 [batch] */
    void* seq_lens;               /* i32 [batch] */
    pb_i32 batch;
    pb_i32 page_size;
} pb_get_seq_lens_params;

#endif
