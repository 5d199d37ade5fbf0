// Two attention states made one. params.h is the contract.
#pragma once
#include "cascade/merge.cuh"
#include "cascade/merge_state/params.h"

namespace pb {

template <class T, int kVec> PB_FN void merge_state(const pb_merge_state_params& p) {
    merge_pairs<T, kVec>(p, place(p));
}

}  // namespace pb
