// Reductions over a block.
#pragma once
#include "parbake/warp.cuh"

namespace pb {

// Sum over the block; every thread gets it. `slots` is shared and holds one float per warp. Nobody may still be reading
// `slots` from an earlier call: a loop takes two arrays in turn, and the barrier of one call then guards the other.
template <int kThreads> PB_FN float block_sum(float v, float* slots PB_AT) {
    constexpr int kWarps = kThreads / 32;
    static_assert(kThreads % 32 == 0 && (kWarps & (kWarps - 1)) == 0, "a power of two of whole warps");
    v = warp_sum(v PB_PASS_AT);
    if constexpr (kWarps == 1) return v;
    if (lane_id() == 0) slots[warp_id()] = v;
    __syncthreads();
    return warp_sum<kWarps>(slots[lane_id() % kWarps] PB_PASS_AT);
}

}  // namespace pb
