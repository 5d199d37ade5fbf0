// Rotary embedding with sines and cosines from a cache. params.h is the contract.
#pragma once
#include "rope/rope_cos_sin_cache/params.h"
#include "rope/rotate.cuh"

namespace pb {

template <class T, class Index, int kVec> PB_FN void rope_cos_sin_cache(const pb_rope_cos_sin_cache_params& p) {
    constexpr int kLane = kLanes<T, kVec>;
    rotate_heads<T, kVec>(p, [&p](i64 token, int first, float (&sine)[kLane], float (&cosine)[kLane]) {
        const i64 position = ld_index<Index>(p.positions, token);
        cached(p.cache, p.cache_stride, position, p.max_position, p.rotary_dim, first, sine, cosine);
    });
}

}  // namespace pb
