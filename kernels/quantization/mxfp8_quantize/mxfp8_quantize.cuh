// Quantisation to MXFP8. params.h is the contract.
#pragma once
#include "quantization/mxfp8_quantize/params.h"
#include "quantization/tile.cuh"

namespace pb {

struct Mxfp8Quantizer {
    const pb_mxfp8_quantize_params& p;
    template <int kLane> static constexpr int kBytes = kLane;
    static PB_FN int bytes(int hidden) { return hidden; }

    PB_FN ue8m0 scale(float amax) const { return group_exponent(amax, kLargest<e4m3>); }
    PB_FN float factor(ue8m0 scale) const { return reciprocal(scale); }
    template <int kLane> PB_FN words<kLane> pack(const float (&v)[kLane]) const { return pb::pack<e4m3, kLane>(v); }
    PB_FN void store(ue8m0 scale, i64 row, int block) const {
        st<1>((u8*)p.scale + scale_offset(p.layout, row, block, p.scale_columns, p.scale_stride),
              words<1>{{scale.bits}});
    }
};

template <class T, int kHeld, int kVec> PB_FN void mxfp8_quantize(const pb_mxfp8_quantize_params& p) {
    quantize_groups<T, 32, kHeld, kVec>(p, p.scale_rows, p.scale_columns, Mxfp8Quantizer{p});
}

}  // namespace pb
