/* The k greatest elements of each row, and where they are. Strides count elements.
 *
 * Order: NaN is greater than everything else and all NaN are equal; -0 equals +0; -inf is an element like any other.
 * Ties at the limit: the smaller indices are taken, or the greater ones if `late`. Exact and deterministic always.
 * Output: in the order of the indices; or `sorted`: the greatest first, equal ones in the order in which ties are taken.
 * Values are the elements themselves, bit for bit. Where k exceeds cols the rest has the value -inf and the index -1. */
#ifndef PARBAKE_SAMPLING_TOP_K_PARAMS_H
#define PARBAKE_SAMPLING_TOP_K_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_top_k_params {
    const void* input; /* [rows, cols] */
    void* values;      /* [rows, k] */
    pb_i64* indices;   /* [rows, k] */
    pb_i64 input_stride;
    pb_i64 values_stride;
    pb_i64 indices_stride;
    pb_i32 cols;
    pb_i32 k;
    pb_i32 tie_bits; /* that hold cols - 1 */
    pb_i32 late;
    pb_i32 sorted;   /* 0, or the power of two of values that are sorted: at least 64 and min(k, cols) */
    pb_i32 list;     /* bytes of dynamic shared memory before the keys: 8 for each of 1024 columns or fewer, or of what is sorted */
    pb_i32 resident; /* vectors of keys that the dynamic shared memory holds */
} pb_top_k_params;

#endif
