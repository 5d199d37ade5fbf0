/* Each row has a scale of its own. In f32:
 *   amax  = the largest |x| of the row; NaN does not count, an infinity counts as the largest finite f32
 *   scale = max(amax, eps) / L, correctly rounded; L is 448 for e4m3 and 57344 for e5m2
 *   out   = x * (1 / scale), reciprocal and product rounded to f32, then to nearest even; beyond L it is +-L
 * A row of zeros gives zeros and eps / L. NaN is the code 0x7f and leaves its row alone, an infinity is +-L.
 * Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TOKEN_PARAMS_H
#define PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TOKEN_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fp8_quantize_per_token_params {
    const void* x;       /* [rows, hidden] */
    void* out;           /* [rows, hidden]; overlaps nothing */
    void* scale;         /* [rows], f32; overlaps nothing */
    pb_i64 x_stride;     /* at least hidden */
    pb_i64 out_stride;   /* at least hidden */
    pb_i64 scale_stride; /* at least 1 */
    pb_i64 rows;
    pb_i32 hidden;
    float eps;           /* at least 1e-30 */
} pb_fp8_quantize_per_token_params;

#endif
