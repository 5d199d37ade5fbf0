/* Tiles of 128 rows and 128 columns share a scale; those at the edges may be smaller. In f32:
 *   amax  = the largest |x| of the tile; NaN does not count, an infinity counts as the largest finite f32
 *   scale = max(amax, eps) / L, correctly rounded; L is 448 for e4m3 and 57344 for e5m2; with power_of_two the smallest
 *           power of two with max(amax, eps) <= scale * L
 *   out   = x * (1 / scale), reciprocal and product rounded to f32, then to nearest even; beyond L it is +-L
 * A tile of zeros gives zeros and eps / L. NaN is the code 0x7f and leaves its tile alone, an infinity is +-L.
 * Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_BLOCK_PARAMS_H
#define PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_BLOCK_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fp8_quantize_per_block_params {
    const void* x;              /* [rows, hidden] */
    void* out;                  /* [rows, hidden]; overlaps nothing */
    void* scale;                /* [ceil(rows / 128), ceil(hidden / 128)], f32; overlaps nothing */
    pb_i64 x_stride;            /* at least hidden */
    pb_i64 out_stride;          /* at least hidden */
    pb_i64 scale_stride;        /* from row to row of tiles */
    pb_i64 scale_column_stride; /* from tile to tile of a row */
    pb_i64 rows;
    pb_i32 hidden;
    pb_i32 power_of_two; /* 0 or 1 */
    float eps;           /* at least 1e-30 */
} pb_fp8_quantize_per_block_params;

#endif
