/* As packbits, for each segment x[indptr[i]] .. x[indptr[i + 1] - 1] by itself: it is packed into the bytes of out that
 * begin at out_indptr[i], what packed_indptr computes. Bytes of out beyond the last segment become 0; what a segment
 * says of elements outside x, too. */
#ifndef PARBAKE_QUANTIZATION_SEGMENT_PACKBITS_PARAMS_H
#define PARBAKE_QUANTIZATION_SEGMENT_PACKBITS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_segment_packbits_params {
    const void* x;          /* [n], one byte each */
    const void* indptr;     /* [batch + 1] */
    const void* out_indptr; /* [batch + 1], i32 */
    void* out;              /* [packed]; overlaps nothing */
    pb_i64 n;
    pb_i64 batch;
    pb_i64 packed;
    pb_i32 little; /* 0 or 1 */
} pb_segment_packbits_params;

#endif
