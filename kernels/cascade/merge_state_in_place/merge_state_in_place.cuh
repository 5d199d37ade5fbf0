// An attention state made one with another in its place. params.h is the contract.
#pragma once
#include "cascade/merge.cuh"
#include "cascade/merge_state_in_place/params.h"

namespace pb {

template <class T, int kVec> PB_FN void merge_state_in_place(const pb_merge_state_in_place_params& p) {
    Place at = place(p);
    if (at.exists && p.mask) at.exists = ld_nc<1>((const u8*)p.mask + at.row).w[0] != 0;
    merge_pairs<T, kVec>(p, at);
}

}  // namespace pb
