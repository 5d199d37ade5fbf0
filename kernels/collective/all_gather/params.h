/* out[r] = x of rank r, for all ranks. A unit is 16 bytes. */
#ifndef PARBAKE_COLLECTIVE_ALL_GATHER_PARAMS_H
#define PARBAKE_COLLECTIVE_ALL_GATHER_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_all_gather_params {
    pb_group group;
    const void* x; /* [elements], at a multiple of 16 bytes */
    void* out;     /* [ranks, elements], the same, dense; overlaps nothing */
    pb_i64 units;  /* of x */
    pb_i64 per;    /* units of a block; the last one may have fewer, none has none */
} pb_all_gather_params;

#endif
