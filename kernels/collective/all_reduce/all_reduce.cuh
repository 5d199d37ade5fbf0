// The sum over ranks. params.h is the contract.
#pragma once
#include "collective/all_reduce/params.h"
#include "collective/group.cuh"

namespace pb {

// kShots 1: each rank reads everything of all ranks. 2: each rank reads and sums up its share, which stands in its region
// then where its x stood, which nobody else reads; then it reads the shares of the others. That is less to read for more than
// two ranks, and one more meeting.
template <class T, int kShots> PB_FN void all_reduce(const pb_all_reduce_params& p) {
    PB_SHARED_ARRAY(u64, regions, kMostRanks);
    const Group group(p.group, regions);
    const Part part(p.units, p.per);
    const int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    const unsigned char* x = (const unsigned char*)p.x + part.first * 16;
    unsigned char* out = (unsigned char*)p.out + part.first * 16;
    group.share(x, part.count);
    group.meet(1);
    group.finish();

    const int ranks = p.group.ranks, share = kShots == 1 ? part.count : (part.count + ranks - 1) / ranks;
    const int first = kShots == 1 ? 0 : min_i(p.group.rank * share, part.count);
    const int end = min_i(first + share, part.count);
    unsigned char* to = kShots == 1 ? out : group.own;
    for (int i = first + thread; i < end; i += threads) {
        float total[kLanes<T, 16>];
        group.sum<T>(i, total);
        st<16>(to + (i64)i * 16, pack<T, 16>(total));
    }
    if constexpr (kShots == 2) {
        group.meet(2);
        for (int turn = 0; turn < ranks; turn++) {
            const int r = group.peer(turn);
            group.take(r, min_i(r * share, part.count), min_i((r + 1) * share, part.count), out);
        }
    }
}

}  // namespace pb
