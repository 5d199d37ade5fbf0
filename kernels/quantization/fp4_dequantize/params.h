/* out = (x * scale) * global_scale in f32, each product rounded, then rounded to out's type. x is e2m1, two values to a
 * byte, the first one in the low half. NVFP4: an e4m3 scale for each 16 columns. MXFP4: a UE8M0 scale for each 32.
 * Without global_scale it is 1. A scale that is NaN gives NaN. What fp4_quantize made with global_scale g is read back
 * with 1 / g. Layouts of the scales: as in mxfp8_quantize. Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_FP4_DEQUANTIZE_PARAMS_H
#define PARBAKE_QUANTIZATION_FP4_DEQUANTIZE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fp4_dequantize_params {
    const void* x;            /* [rows, hidden / 2] */
    const void* scale;        /* [scale_rows, scale_columns] */
    const void* global_scale; /* [1], f32, or null */
    void* out;                /* [rows, hidden]; overlaps nothing */
    pb_i64 x_stride;          /* at least hidden / 2 */
    pb_i64 out_stride;        /* at least hidden */
    pb_i64 scale_stride;      /* at least scale_columns */
    pb_i64 rows;
    pb_i32 hidden;            /* a multiple of the block */
    pb_i32 scale_columns;     /* hidden / block; in tiled layouts padded to a multiple of 4 */
    pb_i32 layout;
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_fp4_dequantize_params;

#endif
