// Quantisation to 8 bits with a scale for each 128 columns of a row. params.h is the contract.
#pragma once
#include "quantization/fp8_quantize_per_token_group/params.h"
#include "quantization/tile.cuh"

namespace pb {

// S is the type of the stored scale: float or ue8m0.
template <class Q, class S> struct GroupQuantizer {
    const pb_fp8_quantize_per_token_group_params& p;
    template <int kLane> static constexpr int kBytes = kLane;
    static PB_FN int bytes(int hidden) { return hidden; }

    PB_FN S scale(float amax) const {
        const ue8m0 e = group_exponent(fmaxf(amax, p.eps), kLargest<Q>);
        if constexpr (sizeof(S) == 1) return e;
        else return p.power_of_two ? to_f32(e) : group_scale(amax, p.eps, kLargest<Q>);
    }
    PB_FN float factor(S scale) const { return reciprocal(scale); }
    template <int kLane> PB_FN words<kLane> pack(const float (&v)[kLane]) const { return pb::pack<Q, kLane>(v); }
    PB_FN void store(S scale, i64 row, int group) const {
        S* to = (S*)p.scale + row * p.scale_stride + group * p.scale_group_stride;
        if constexpr (sizeof(S) == 1) st<1>(to, words<1>{{scale.bits}});
        else st<4>(to, words<4>{{bits_of<u32>(scale)}});
    }
};

template <class T, class Q, class S, int kHeld, int kVec>
PB_FN void fp8_quantize_per_token_group(const pb_fp8_quantize_per_token_group_params& p) {
    quantize_groups<T, 128, kHeld, kVec>(p, p.rows, (p.hidden + 127) / 128, GroupQuantizer<Q, S>{p});
}

}  // namespace pb
