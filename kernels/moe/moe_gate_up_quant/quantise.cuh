// A group of 128 results of a row in 8 bits. params.h is the contract.
#pragma once
#include "moe/moe_gate_up_quant/params.h"
#include "parbake/scale.cuh"
#include "parbake/vec.cuh"
#include "parbake/warp.cuh"

namespace pb {

// A warp has the group, each lane four values side by side, of which `column` is the first.
PB_FN void write_group(const pb_moe_gate_up_quant_params& p, float (&v)[4], i64 row, int column) {
    float top = 0.f;
#pragma unroll
    for (int e = 0; e < 4; e++) top = max_f(top, fabsf(v[e]));
    const float s = group_scale(warp_max(top), p.eps, kLargest<e4m3>), inverse = reciprocal(s);
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] *= inverse;
    st<4>((u8*)p.out + row * p.out_row + column, pack<e4m3, 4>(v));
    if (lane_id() == 0) st<4>((float*)p.scale + row * p.scale_row + column / 128 * p.scale_group, {{bits_of<u32>(s)}});
}

}  // namespace pb
