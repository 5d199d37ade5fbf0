/* out = x * 2^(scale - 127), rounded to out's type: e4m3 values, a UE8M0 scale for each 32 columns of a row. The
 * product of f32 is exact but where it leaves the range of f32. NaN in x or a scale of 255 gives NaN. Layouts of the
 * scales: as in mxfp8_quantize. Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_MXFP8_DEQUANTIZE_PARAMS_H
#define PARBAKE_QUANTIZATION_MXFP8_DEQUANTIZE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_mxfp8_dequantize_params {
    const void* x;        /* [rows, hidden] */
    const void* scale;    /* [scale_rows, scale_columns] */
    void* out;            /* [rows, hidden]; overlaps nothing */
    pb_i64 x_stride;      /* at least hidden */
    pb_i64 out_stride;    /* at least hidden */
    pb_i64 scale_stride;  /* at least scale_columns */
    pb_i64 rows;
    pb_i32 hidden;        /* a multiple of 32 */
    pb_i32 scale_columns; /* hidden / 32; in tiled layouts padded to a multiple of 4 */
    pb_i32 layout;
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_mxfp8_dequantize_params;

#endif
