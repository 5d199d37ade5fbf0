/* Choices of tokens sorted by expert, each expert's padded to whole tiles. A choice is a place in ids. */
#ifndef PARBAKE_MOE_MOE_ALIGN_PARAMS_H
#define PARBAKE_MOE_MOE_ALIGN_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_moe_align_params {
    const void* ids;    /* i32 [choices] */
    void* rows;         /* i32 [capacity] */
    void* tile_experts; /* i32 [tiles], or absent */
    void* indptr;       /* i32 [experts + 1] */
    void* places;       /* i32 [choices] */
    pb_i32 choices;
    pb_i32 experts;
    pb_i32 first;
    pb_i32 tile;
    pb_i32 capacity; /* holds the choices, whatever they are */
    pb_i32 tiles;
    pb_u32 magic; /* divide by choices of a token, as math.cuh says */
    pb_u32 shift;
    pb_i32 wide; /* ids begins at a multiple of 16 bytes */
} pb_moe_align_params;

#endif
