/* e2m1 values, two to a byte, the first one in the low half; blocks of columns share a scale. NaN does not count in a
 * block's amax, the largest |x|, and an infinity counts as the largest finite f32. In f32, each operation rounded:
 * NVFP4, blocks of 16, scales are e4m3, with a factor for the whole tensor, 1 if it is absent:
 *   scale = (amax * (1/6)) * global_scale, rounded to e4m3: to nearest even, beyond 448 it is 448
 *   out   = x * (1 / (scale * (1 / global_scale))), or x * 0 where scale is 0
 * MXFP4, blocks of 32, scales are UE8M0, the code log2(scale) + 127; global_scale is absent:
 *   scale = the smallest power of two, at least 2^-127, with amax <= 6 * scale
 *   out   = x / scale
 * out is rounded to e2m1 to nearest, a tie to the even code, beyond 6 it is +-6, NaN becomes +6.
 * Blocks of zeros are zeros with code 0. Layouts of the scales: as in mxfp8_quantize; padding is written as 0.
 * Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_FP4_QUANTIZE_PARAMS_H
#define PARBAKE_QUANTIZATION_FP4_QUANTIZE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fp4_quantize_params {
    const void* x;            /* [rows, hidden] */
    const void* global_scale; /* [1], f32, positive and finite, or null; null for MXFP4 */
    void* out;                /* [rows, hidden / 2]; overlaps nothing */
    void* scale;              /* [scale_rows, scale_columns]; overlaps nothing */
    pb_i64 x_stride;          /* at least hidden */
    pb_i64 out_stride;        /* at least hidden / 2 */
    pb_i64 scale_stride;      /* at least scale_columns; equal to it in tiled layouts */
    pb_i64 rows;
    pb_i64 scale_rows;        /* rows; in tiled layouts padded to a multiple of 128 or 8 */
    pb_i32 hidden;            /* a multiple of the block */
    pb_i32 scale_columns;     /* hidden / block; in tiled layouts padded to a multiple of 4 */
    pb_i32 layout;
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_fp4_quantize_params;

#endif
