/* Rows of a table by number, bytes as they are. A number that the table does not have gives zeros. Strides count
 * bytes but for that of ids, which counts elements. */
#ifndef PARBAKE_PAGE_EMBEDDING_PARAMS_H
#define PARBAKE_PAGE_EMBEDDING_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_embedding_params {
    void* out;         /* [tokens, hidden] */
    const void* ids;   /* i32 or i64 [tokens] */
    const void* table; /* [vocab, hidden] */
    pb_i64 out_stride; /* from row to row */
    pb_i64 ids_stride;
    pb_i64 table_stride;
    pb_i64 first; /* number of the table's first row */
    pb_i64 vocab;
    pb_u32 threads; /* tokens * groups */
    pb_i32 groups;  /* threads that share a row, at least units / 4 */
    pb_i32 units;   /* accesses of a row */
} pb_embedding_params;

#endif
