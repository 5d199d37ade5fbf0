/* out = the sum over ranks of their x, in f32 and in the order of ranks, rounded once. A unit is 16 bytes. */
#ifndef PARBAKE_COLLECTIVE_ALL_REDUCE_PARAMS_H
#define PARBAKE_COLLECTIVE_ALL_REDUCE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_all_reduce_params {
    pb_group group;
    const void* x; /* [elements], at a multiple of 16 bytes */
    void* out;     /* [elements], the same; may be x */
    pb_i64 units;
    pb_i64 per; /* units of a block; the last one may have fewer, none has none */
} pb_all_reduce_params;

#endif
