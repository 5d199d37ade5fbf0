/* out = the sum over ranks of row `rank` of their x, in f32 and in the order of ranks, rounded once. A unit is 16 bytes. */
#ifndef PARBAKE_COLLECTIVE_REDUCE_SCATTER_PARAMS_H
#define PARBAKE_COLLECTIVE_REDUCE_SCATTER_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_reduce_scatter_params {
    pb_group group;
    const void* x; /* [ranks, elements], at a multiple of 16 bytes, dense */
    void* out;     /* [elements], the same; overlaps nothing */
    pb_i64 units;  /* of a row */
    pb_i64 per;    /* units of a row that a block takes; the last one may have fewer, none has none */
} pb_reduce_scatter_params;

#endif
