// Begins of packed segments. params.h is the contract.
#pragma once
#include "parbake/warp.cuh"
#include "quantization/packed_indptr/params.h"
#include "quantization/segments.cuh"

namespace pb {

// One block of 1024 threads takes all segments, 1024 at a time.
template <class I> PB_FN void packed_indptr(const pb_packed_indptr_params& p) {
    PB_SHARED_ARRAY(i32, sums, 64);
    i32* out = (i32*)p.out;
    if (threadIdx.x == 0) st<4>(out, words<4>{{0}});
    i32 carry = 0;
    int turn = 0;
#pragma unroll 1
    for (i64 first = 0; first < p.batch; first += 1024, turn ^= 32) {
        const i64 i = first + threadIdx.x;
        i64 length = 0;
        if (i < p.batch) length = load_index((const I*)p.indptr + i + 1) - load_index((const I*)p.indptr + i);
        i32 sum = length > 0 ? (i32)((length + 7) / 8) : 0;
        const u32 lane = lane_id();
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const i32 below = shfl_up(sum, d);
            if (lane >= (u32)d) sum += below;
        }
        // Two halves in turn: nobody still reads what the next turn writes.
        if (lane == 31) sums[turn + warp_id()] = sum;
        __syncthreads();
        i32 warps = sums[turn + lane];
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const i32 below = shfl_up(warps, d);
            if (lane >= (u32)d) warps += below;
        }
        const i32 before = shfl(warps, (int)(warp_id() + 31) % 32);
        sum += carry + (warp_id() ? before : 0);
        if (i < p.batch) st<4>(out + i + 1, words<4>{{(u32)sum}});
        carry += shfl(warps, 31);
    }
}

}  // namespace pb
