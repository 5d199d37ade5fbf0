/* Blocks of two caches copied within them, bytes as they are: for each pair (source, destination) of the mapping. A
 * pair with a block that does not exist is passed over; -1 is a way to say so. A block that is a destination should be
 * in no other pair: what would be copied then is not defined. Strides count bytes. */
#ifndef PARBAKE_PAGE_COPY_BLOCKS_PARAMS_H
#define PARBAKE_PAGE_COPY_BLOCKS_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_copy_blocks_params {
    void* k_cache;       /* [blocks, block], in and out; may lie between the elements of v_cache */
    void* v_cache;       /* the same */
    const void* mapping; /* i64 [pairs, 2] */
    pb_i64 k_stride;     /* from block to block */
    pb_i64 v_stride;
    pb_i64 mapping_stride; /* from pair to pair, in elements */
    pb_i64 blocks;
    pb_u32 threads; /* pairs * groups */
    pb_i32 groups;  /* threads that share a block, at least units / 2 */
    pb_i32 units;   /* accesses of a block of one cache */
} pb_copy_blocks_params;

#endif
