// Quantisation to 4 bits in blocks. params.h is the contract.
#pragma once
#include "parbake/fp4.cuh"
#include "quantization/fp4_quantize/params.h"
#include "quantization/tile.cuh"

namespace pb {

struct Nvfp4 {
    static constexpr int kBlock = 16;
    float global, inverse;
    PB_FN explicit Nvfp4(const void* scale)
        : global(scale ? bits_of<float>(ld_nc<4>(scale).w[0]) : 1.f), inverse(reciprocal(global)) {}
    PB_FN e4m3 scale(float amax) const {
        return convert<e4m3>::from(fminf(amax, kLargestF32) * (1.f / kLargestE2m1) * global);
    }
    PB_FN float factor(e4m3 scale) const { return scale.bits ? reciprocal(to_f32(scale) * inverse) : 0.f; }
};
struct Mxfp4 {
    static constexpr int kBlock = 32;
    PB_FN explicit Mxfp4(const void*) {}
    PB_FN ue8m0 scale(float amax) const { return group_exponent(amax, kLargestE2m1); }
    PB_FN float factor(ue8m0 scale) const { return reciprocal(scale); }
};

template <class Format> struct Fp4Quantizer {
    const pb_fp4_quantize_params& p;
    Format format;
    template <int kLane> static constexpr int kBytes = kLane / 2;
    static PB_FN int bytes(int hidden) { return hidden / 2; }

    PB_FN auto scale(float amax) const { return format.scale(amax); }
    template <class S> PB_FN float factor(S scale) const { return format.factor(scale); }
    template <int kLane> PB_FN words<kLane / 2> pack(const float (&v)[kLane]) const { return pack_e2m1(v); }
    template <class S> PB_FN void store(S scale, i64 row, int block) const {
        st<1>((u8*)p.scale + scale_offset(p.layout, row, block, p.scale_columns, p.scale_stride),
              words<1>{{scale.bits}});
    }
};

template <class T, class Format, int kHeld, int kVec>
PB_FN void fp4_quantize(const pb_fp4_quantize_params& p) {
    quantize_groups<T, Format::kBlock, kHeld, kVec>(p, p.scale_rows, p.scale_columns,
                                                    Fp4Quantizer<Format>{p, Format(p.global_scale)});
}

}  // namespace pb
