/* Of each row the k greatest probabilities over their sum; all others become 0. Strides count elements.
 *
 * Exactly k are kept, of equal ones the smaller indices. What is not positive counts as 0 and stays 0, also if it is
 * kept; a row without positive elements becomes 0. A row with NaN or +infinity becomes NaN throughout. A k below 1 counts
 * as 1; one of cols or more keeps everything. The sum is exact to about 2^-45 of it, its order fixed. */
#ifndef PARBAKE_SAMPLING_TOP_K_RENORM_PROBS_PARAMS_H
#define PARBAKE_SAMPLING_TOP_K_RENORM_PROBS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_top_k_renorm_probs_params {
    const void* x;    /* [rows, cols] */
    void* out;        /* [rows, cols]; may be x itself with the same stride, otherwise overlaps nothing */
    const pb_i32* of; /* k of each row, or null */
    pb_i64 x_stride;
    pb_i64 out_stride;
    pb_i32 cols;
    pb_i32 k;        /* of every row where `of` is null */
    pb_i32 tie_bits; /* that hold cols - 1 */
    pb_i32 list;     /* bytes of dynamic shared memory before the keys: 8 for each of 1024 columns or what there are */
    pb_i32 resident; /* vectors of keys that the dynamic shared memory holds */
} pb_top_k_renorm_probs_params;

#endif
