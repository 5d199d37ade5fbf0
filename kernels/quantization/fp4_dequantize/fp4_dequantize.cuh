// Values of 4-bit blocks. params.h is the contract.
#pragma once
#include "parbake/fp4.cuh"
#include "quantization/fp4_dequantize/params.h"
#include "quantization/tile.cuh"

namespace pb {

// S is the type of the scales: e4m3 or ue8m0.
template <class S> struct Fp4Dequantizer {
    const pb_fp4_dequantize_params& p;
    float global;
    PB_FN float factor(i64 row, int block) const {
        const u8* scale = (const u8*)p.scale + scale_offset(p.layout, row, block, p.scale_columns, p.scale_stride);
        return to_f32(S{(u8)ld_nc<1>(scale).w[0]});
    }
    template <int kBytes> PB_FN void unpack(const words<kBytes>& w, float (&v)[2 * kBytes]) const {
        unpack_e2m1(w.w[0], v);
    }
    PB_FN float value(float v, float factor) const { return v * factor * global; }
};

template <class T, class S, int kGroup, int kHeld, int kVec>
PB_FN void fp4_dequantize(const pb_fp4_dequantize_params& p) {
    const float global = p.global_scale ? bits_of<float>(ld_nc<4>(p.global_scale).w[0]) : 1.f;
    dequantize_groups<T, 4, kGroup, kHeld, kVec>(p, Fp4Dequantizer<S>{p, global});
}

}  // namespace pb
