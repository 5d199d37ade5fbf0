/* One scale for the whole tensor, from the largest magnitudes of its shares (see amax), in f32:
 *   scale = max(amax, eps) / L, correctly rounded, where amax is the largest of them, an infinity counting as the
 *           largest finite f32; L is 448 for e4m3 and 57344 for e5m2
 *   out   = x * (1 / scale), reciprocal and product rounded to f32, then to nearest even; beyond L it is +-L
 * A tensor of zeros gives zeros and eps / L. NaN is the code 0x7f. Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TENSOR_DYNAMIC_PARAMS_H
#define PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TENSOR_DYNAMIC_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fp8_quantize_per_tensor_dynamic_params {
    const void* x;     /* [rows, hidden] */
    const void* amax;  /* [512], f32 */
    void* out;         /* [rows, hidden]; overlaps nothing */
    void* scale;       /* [1], f32; overlaps nothing */
    pb_i64 x_stride;   /* at least hidden */
    pb_i64 out_stride; /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    float eps;         /* at least 1e-30 */
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_fp8_quantize_per_tensor_dynamic_params;

#endif
