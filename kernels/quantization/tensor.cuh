// Quantisation with one scale for the whole tensor.
#pragma once
#include "quantization/tile.cuh"

namespace pb {

template <class Q> struct TensorQuantizer {
    float inverse;
    template <int kLane> static constexpr int kBytes = kLane;
    static PB_FN int bytes(int hidden) { return hidden; }

    PB_FN int scale(float) const { return 0; }
    PB_FN float factor(int) const { return inverse; }
    template <int kLane> PB_FN words<kLane> pack(const float (&v)[kLane]) const { return pb::pack<Q, kLane>(v); }
    PB_FN void store(int, i64, int) const {}
};

template <class T, class Q, int kHeld, int kVec, class P> PB_FN void quantize_tensor(const P& p, float scale) {
    quantize_groups<T, kLanes<T, 16>, kHeld, kVec>(p, p.rows, p.hidden, TensorQuantizer<Q>{reciprocal(scale)});
}

}  // namespace pb
