/* Groups of 128 columns of a row share a scale; the last group of a row may be shorter. For each group, in f32:
 *   amax  = the largest |x|; NaN does not count, an infinity counts as the largest finite f32
 *   scale = max(amax, eps) / L, correctly rounded; L is 448 for e4m3 and 57344 for e5m2
 *   out   = x * (1 / scale), reciprocal and product rounded to f32, then to nearest even; beyond L it is +-L
 * With power_of_two, or UE8M0 scales: scale = the smallest power of two with max(amax, eps) <= scale * L, as f32 or as
 * the code of its exponent, log2(scale) + 127.
 * Groups of zeros are zeros with scale eps / L. NaN becomes the code 0x7f and leaves its group alone, an infinity
 * becomes +-L. Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TOKEN_GROUP_PARAMS_H
#define PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TOKEN_GROUP_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fp8_quantize_per_token_group_params {
    const void* x;             /* [rows, hidden] */
    void* out;                 /* [rows, hidden]; overlaps nothing */
    void* scale;               /* [rows, ceil(hidden / 128)]; overlaps nothing */
    pb_i64 x_stride;           /* at least hidden */
    pb_i64 out_stride;         /* at least hidden */
    pb_i64 scale_stride;       /* from row to row */
    pb_i64 scale_group_stride; /* from group to group */
    pb_i64 rows;
    pb_i32 hidden;
    pb_i32 power_of_two; /* 0 or 1; UE8M0 scales: 1 */
    float eps;           /* at least 1e-30 */
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_fp8_quantize_per_token_group_params;

#endif
