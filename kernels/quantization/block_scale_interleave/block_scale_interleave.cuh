// Block scales to tiles. params.h is the contract.
#pragma once
#include "parbake/vec.cuh"
#include "quantization/block_scale_interleave/params.h"

namespace pb {

// A thread writes four scales of a row: one word.
PB_FN void block_scale_interleave(const pb_block_scale_interleave_params& p) {
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= p.words) return;
    const i64 tiles = (p.columns + 3) / 4, tile = at / 128, down = tile / tiles;
    const int word = (int)(at % 128);
    const i64 row = down * 128 + word % 4 * 32 + word / 4, column = (tile - down * tiles) * 4;
    const u8* x = (const u8*)p.x + row * p.x_stride + column;
    u32 w = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (row < p.rows && column + i < p.columns) w |= ld_nc<1>(x + i).w[0] << 8 * i;
    u8* out = (u8*)p.out + 4 * at;
    if ((u64)out % 4 == 0) {
        st<4>(out, words<4>{{w}});
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) st<1>(out + i, words<1>{{w >> 8 * i & 255u}});
    }
}

}  // namespace pb
