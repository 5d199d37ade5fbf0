/* MXFP8: e4m3 values, each 32 columns of a row share a scale that is a power of two, stored as UE8M0, the code
 * log2(scale) + 127. For each block, in f32:
 *   amax  = the largest |x|; NaN does not count, an infinity counts as the largest finite f32
 *   scale = the smallest power of two, at least 2^-127, with amax <= 448 * scale
 *   out   = x / scale, rounded to nearest even; beyond 448 it is +-448
 * Blocks of zeros are zeros with code 0. NaN becomes the code 0x7f and leaves its block alone, an infinity becomes
 * +-448. Layouts of the scales; s(m, k) is the scale of row m and block k, rows and blocks of the tiled layouts are
 * padded with zeros, written here too:
 *   2  linear: row by row
 *   0  tiles of 128 rows x 4 blocks, at ((m / 128) * (K / 4) + k / 4) * 512 + m % 32 * 16 + m % 128 / 32 * 4 + k % 4
 *   1  tiles of 8 rows x 4 blocks, at ((m / 8) * (K / 4) + k / 4) * 32 + m % 8 * 4 + k % 4
 * where K is the padded number of blocks. Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_MXFP8_QUANTIZE_PARAMS_H
#define PARBAKE_QUANTIZATION_MXFP8_QUANTIZE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_mxfp8_quantize_params {
    const void* x;         /* [rows, hidden] */
    void* out;             /* [rows, hidden]; overlaps nothing */
    void* scale;           /* [scale_rows, scale_columns]; overlaps nothing */
    pb_i64 x_stride;       /* at least hidden */
    pb_i64 out_stride;     /* at least hidden */
    pb_i64 scale_stride;   /* at least scale_columns; equal to it in tiled layouts */
    pb_i64 rows;
    pb_i64 scale_rows;     /* rows; in tiled layouts padded to a multiple of 128 or 8 */
    pb_i32 hidden;         /* a multiple of 32 */
    pb_i32 scale_columns;  /* hidden / 32; in tiled layouts padded to a multiple of 4 */
    pb_i32 layout;
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_mxfp8_quantize_params;

#endif
