/* out[i] = the largest |x| of the i-th share of x, so that the largest of out is that of x. NaN does not count, an
 * infinity does; an empty share has 0. Shares are disjoint and cover x. A block takes the tiles i, i + 512, i + 1024,
 * .. where, with vectors of 16 bytes, tile t is
 *   down: rows t * 4 * block_rows and the 4 * block_rows - 1 below it
 *   else: vectors (t % chunks) * 4 * row_threads and the 4 * row_threads - 1 after it, of the block_rows rows from
 *         (t / chunks) * block_rows on
 * Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_AMAX_PARAMS_H
#define PARBAKE_QUANTIZATION_AMAX_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_amax_params {
    const void* x;   /* [rows, hidden] */
    void* out;       /* [512], f32; overlaps nothing */
    pb_i64 x_stride; /* at least hidden */
    pb_i64 rows;
    pb_i64 tiles;    /* what blocks take in turn */
    pb_i32 hidden;
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_amax_params;

#endif
