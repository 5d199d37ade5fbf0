/* Block scales, row by row, to tiles of 128 rows x 4 columns: the scale of row m and column k comes to offset
 * ((m / 128) * (K / 4) + k / 4) * 512 + m % 32 * 16 + m % 128 / 32 * 4 + k % 4, where K is the padded number of
 * columns. Padding is 0. Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_BLOCK_SCALE_INTERLEAVE_PARAMS_H
#define PARBAKE_QUANTIZATION_BLOCK_SCALE_INTERLEAVE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_block_scale_interleave_params {
    const void* x;   /* [rows, columns] */
    void* out;       /* [rows padded to a multiple of 128, columns padded to one of 4], dense; overlaps nothing */
    pb_i64 x_stride; /* at least columns */
    pb_i64 rows;
    pb_i64 columns;
    pb_i64 words;    /* a quarter of the bytes of out */
} pb_block_scale_interleave_params;

#endif
