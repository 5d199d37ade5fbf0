// Rotary embedding with frequencies computed on the way. params.h is the contract.
#pragma once
#include "rope/apply_rope/params.h"
#include "rope/rotate.cuh"

namespace pb {

// The product is off by 2^-45 before it is rounded.
PB_FN float frequency(const pb_apply_rope_params& p, int i) {
    const int c = i / 16 * 2, f = i % 16 * 2;
    const float high = mul_rn(p.coarse[c], p.fine[f]);
    const float low = fmaf(p.coarse[c], p.fine[f], -high) + (p.coarse[c] * p.fine[f + 1] + p.coarse[c + 1] * p.fine[f]);
    const float g = high + low;
    const float smooth = fminf(fmaxf(fmaf(g, p.smooth_slope, p.smooth_offset), 0.f), 1.f);
    return mul_rn(g, fmaf(smooth, 1.f - p.slowest, p.slowest));
}

// The segment of a token is found by halving: the last that does not begin behind it.
template <class Index> PB_FN float position(const pb_apply_rope_params& p, i64 token) {
    if (p.pos_ids) return (float)ld_index<Index>(p.pos_ids, token);
    int low = 0, high = p.batch;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (ld_index<Index>(p.indptr, middle + 1) <= token) low = middle + 1;
        else high = middle;
    }
    if (low == p.batch) return 0.f;
    const i64 first = ld_index<Index>(p.indptr, low);
    return token < first ? 0.f : (float)((i64)ld_index<Index>(p.offsets, low) + token - first);
}

template <class T, class Index, int kVec> PB_FN void apply_rope(const pb_apply_rope_params& p) {
    constexpr int kLane = kLanes<T, kVec>;
    rotate_heads<T, kVec>(p, [&p](i64 token, int first, float (&sine)[kLane], float (&cosine)[kLane]) {
        const float at = position<Index>(p, token);
        float angle[kLane];
#pragma unroll
        for (int j = 0; j < kLane; j++) angle[j] = mul_rn(at, frequency(p, first + j));
        sin_cos(angle, sine, cosine);
    });
}

}  // namespace pb
