/* out[i] holds x[8 i] .. x[8 i + 7], one bit each: set where x is not 0, and 0 beyond the end of x. The first element
 * is the highest bit, or the lowest one if `little`. */
#ifndef PARBAKE_QUANTIZATION_PACKBITS_PARAMS_H
#define PARBAKE_QUANTIZATION_PACKBITS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_packbits_params {
    const void* x; /* [n], one byte each */
    void* out;     /* [ceil(n / 8)]; overlaps nothing */
    pb_i64 n;
    pb_i32 little; /* 0 or 1 */
} pb_packbits_params;

#endif
