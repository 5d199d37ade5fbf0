/* One scale for the whole tensor, given: out = x * (1 / scale), reciprocal and product rounded to f32, then to nearest
 * even. Beyond the largest value L, 448 for e4m3 and 57344 for e5m2, it is +-L, infinities too; NaN is the code 0x7f.
 * Strides count elements. */
#ifndef PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TENSOR_PARAMS_H
#define PARBAKE_QUANTIZATION_FP8_QUANTIZE_PER_TENSOR_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_fp8_quantize_per_tensor_params {
    const void* x;     /* [rows, hidden] */
    const void* scale; /* [1], f32, positive and finite; read on the device */
    void* out;         /* [rows, hidden]; overlaps nothing */
    pb_i64 x_stride;   /* at least hidden */
    pb_i64 out_stride; /* at least hidden */
    pb_i64 rows;
    pb_i32 hidden;
    pb_i32 row_threads; /* the launcher's choice, see quantization/tile.cuh: threads of a row in a block, 1 to 256 */
    pb_i32 block_rows;  /* rows side by side in a block */
    pb_i32 chunks;      /* blocks that share a row */
    pb_i32 down;        /* 1: a thread's vectors lie in rows below each other; chunks is 1 then */
} pb_fp8_quantize_per_tensor_params;

#endif
