/* Of each row the greatest probabilities that make up the share top_p of its mass, over their sum; all others become 0.
 * Strides count elements.
 *
 * Kept is the shortest beginning, and at least one element, of the row sorted by value, descending, then by index, whose
 * sum is top_p times that of the whole row or more. Sums are exact to about 2^-52 of them. If top_p is 1 or more or NaN,
 * everything is kept. What is not positive counts as 0 and stays 0; a row without positive elements becomes 0. A row with
 * NaN or +infinity becomes NaN throughout. */
#ifndef PARBAKE_SAMPLING_TOP_P_RENORM_PROBS_PARAMS_H
#define PARBAKE_SAMPLING_TOP_P_RENORM_PROBS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_top_p_renorm_probs_params {
    const void* x;    /* [rows, cols] */
    void* out;        /* [rows, cols]; may be x itself with the same stride, otherwise overlaps nothing */
    const float* of; /* top_p of each row, or null */
    pb_i64 x_stride;
    pb_i64 out_stride;
    pb_i32 cols;
    float top_p;        /* of every row where `of` is null */
    pb_i32 tie_bits; /* that hold cols - 1 */
    pb_i32 list;     /* bytes of dynamic shared memory before the keys: 8 for each of 1024 columns or what there are */
    pb_i32 resident; /* vectors of keys that the dynamic shared memory holds */
} pb_top_p_renorm_probs_params;

#endif
