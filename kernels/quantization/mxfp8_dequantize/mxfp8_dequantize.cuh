// Values of MXFP8. params.h is the contract.
#pragma once
#include "quantization/mxfp8_dequantize/params.h"
#include "quantization/tile.cuh"

namespace pb {

struct Mxfp8Dequantizer {
    const pb_mxfp8_dequantize_params& p;
    PB_FN float factor(i64 row, int block) const {
        const u8* scale = (const u8*)p.scale + scale_offset(p.layout, row, block, p.scale_columns, p.scale_stride);
        return to_f32(ue8m0{(u8)ld_nc<1>(scale).w[0]});
    }
    template <int kLane> PB_FN void unpack(const words<kLane>& w, float (&v)[kLane]) const {
        pb::unpack<e4m3, kLane>(w, v);
    }
    PB_FN float value(float v, float factor) const { return v * factor; }
};

template <class T, int kHeld, int kVec> PB_FN void mxfp8_dequantize(const pb_mxfp8_dequantize_params& p) {
    dequantize_groups<T, 8, 32, kHeld, kVec>(p, Mxfp8Dequantizer{p});
}

}  // namespace pb
