// Reductions over a block.
#pragma once
#include "parbake/warp.cuh"

namespace pb {

// Reduction over the block; every thread gets it. `slots` is shared and holds 32 floats. Nobody may still be reading
// `slots` from an earlier call: a loop takes two arrays in turn, so that the barrier of one call guards the other.
template <class Op> PB_FN float block_reduce(float v, float* slots PB_AT) {
    v = warp_reduce<Op, 32>(v PB_PASS_AT);
    if (lane_id() == 0) slots[warp_id()] = v;
    __syncthreads();
    return warp_reduce<Op, 32>(lane_id() < blockDim.x / 32 ? slots[lane_id()] : Op::kNone PB_PASS_AT);
}
PB_FN float block_sum(float v, float* slots PB_AT) {
    return block_reduce<Sum>(v, slots PB_PASS_AT);
}
PB_FN float block_max(float v, float* slots PB_AT) {
    return block_reduce<Max>(v, slots PB_PASS_AT);
}

}  // namespace pb
