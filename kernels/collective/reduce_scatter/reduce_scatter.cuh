// The sum over ranks of the row that is this rank's. params.h is the contract.
#pragma once
#include "collective/group.cuh"
#include "collective/reduce_scatter/params.h"

namespace pb {

template <class T> PB_FN void reduce_scatter(const pb_reduce_scatter_params& p) {
    PB_SHARED_ARRAY(u64, regions, kMostRanks);
    const Group group(p.group, regions);
    const Part part(p.units, p.per);
    const int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    const unsigned char* x = (const unsigned char*)p.x + part.first * 16;
    unsigned char* out = (unsigned char*)p.out + part.first * 16;
    for (int r = 0; r < p.group.ranks; r++) group.share(x + r * p.units * 16, part.count, r * p.per);
    group.meet(1);
    group.finish();
    for (int i = thread; i < part.count; i += threads) {
        float total[kLanes<T, 16>];
        group.sum<T>(p.group.rank * p.per + i, total);
        st<16>(out + (i64)i * 16, pack<T, 16>(total));
    }
}

}  // namespace pb
