/* Where packed segments begin: out[0] = 0, out[i + 1] = out[i] + ceil((indptr[i + 1] - indptr[i]) / 8). Segments whose
 * end lies before their begin count as empty. */
#ifndef PARBAKE_QUANTIZATION_PACKED_INDPTR_PARAMS_H
#define PARBAKE_QUANTIZATION_PACKED_INDPTR_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_packed_indptr_params {
    const void* indptr; /* [batch + 1] */
    void* out;          /* [batch + 1], i32; overlaps nothing */
    pb_i64 batch;
} pb_packed_indptr_params;

#endif
