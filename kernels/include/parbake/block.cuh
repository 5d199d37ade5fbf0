// Reductions over a block.
#pragma once
#include "parbake/warp.cuh"

namespace pb {

// Sum over the block; every thread gets it. `slots` is shared and holds 32 floats. Nobody may still be reading `slots`
// from an earlier call: a loop takes two arrays in turn, so that the barrier of one call guards the other.
PB_FN float block_sum(float v, float* slots PB_AT) {
    v = warp_sum(v PB_PASS_AT);
    if (lane_id() == 0) slots[warp_id()] = v;
    __syncthreads();
    return warp_sum(lane_id() < blockDim.x / 32 ? slots[lane_id()] : 0.f PB_PASS_AT);
}
// The same with the maximum of values that are at least 0.
PB_FN float block_max(float v, float* slots PB_AT) {
    v = warp_max(v PB_PASS_AT);
    if (lane_id() == 0) slots[warp_id()] = v;
    __syncthreads();
    return warp_max(lane_id() < blockDim.x / 32 ? slots[lane_id()] : 0.f PB_PASS_AT);
}

}  // namespace pb
