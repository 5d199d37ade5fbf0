// The x of all ranks, one after the other. params.h is the contract.
#pragma once
#include "collective/all_gather/params.h"
#include "collective/group.cuh"

namespace pb {

PB_FN void all_gather(const pb_all_gather_params& p) {
    PB_SHARED_ARRAY(u64, regions, kMostRanks);
    const Group group(p.group, regions);
    const Part part(p.units, p.per);
    const unsigned char* x = (const unsigned char*)p.x + part.first * 16;
    unsigned char* out = (unsigned char*)p.out + part.first * 16;
    group.share(x, part.count);
    group.meet(1);
    group.finish();
    for (int turn = 0; turn < p.group.ranks; turn++) {
        const int r = group.peer(turn);
        group.take(r, 0, part.count, out + r * p.units * 16);
    }
}

}  // namespace pb
