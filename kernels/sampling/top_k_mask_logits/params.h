/* Of each row the k greatest logits; all others become -inf. Strides count elements.
 *
 * Exactly k stay: NaN is greater than everything else, -0 equals +0, and of equal ones the smaller indices stay. What
 * stays is unchanged, bit for bit; -inf and NaN are elements like any other. A k below 1 counts as 1; one of cols or more
 * keeps the row. */
#ifndef PARBAKE_SAMPLING_TOP_K_MASK_LOGITS_PARAMS_H
#define PARBAKE_SAMPLING_TOP_K_MASK_LOGITS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_top_k_mask_logits_params {
    const void* x;      /* [rows, cols] */
    void* out;          /* [rows, cols]; may be x itself with the same stride, otherwise overlaps nothing */
    const pb_i32* of;   /* k of each row, or null */
    pb_i64 x_stride;
    pb_i64 out_stride;
    pb_i32 cols;
    pb_i32 k;        /* of every row where `of` is null */
    pb_i32 tie_bits; /* that hold cols - 1 */
    pb_i32 list;     /* bytes of dynamic shared memory before the keys: 8 for each of 1024 columns or what there are */
    pb_i32 resident; /* vectors of keys that the dynamic shared memory holds */
} pb_top_k_mask_logits_params;

#endif
