// Probabilities that are kept, over their sum.
#pragma once
#include "sampling/collect.cuh"

namespace pb {

// 1 / sum as two floats, so that a product with it is rounded once. Rows of subnormal mass are raised before.
struct Inverse {
    float raise, hi, lo;
    PB_FN explicit Inverse(double sum) : raise(1.f), hi(0.f), lo(0.f) {
        if (!(sum > 0.)) return;
        if (sum < 0x1p-100) raise = 0x1p100f, sum *= 0x1p100;
        hi = 1.f / (float)sum;
        lo = (float)(1. - sum * (double)hi) * hi;
    }
    PB_FN float times(float v) const { return fmaf(v * raise, hi, v * raise * lo); }
};

// Adds floats with what their addition loses.
struct ExactSum {
    float hi = 0.f, lo = 0.f;
    PB_FN void add(float v) {
        const float s = hi + v, b = s - hi;
        lo += (hi - (s - b)) + (v - b);
        hi = s;
    }
};

// The sum of what is kept; every thread of the cluster gets it.
template <class Slice> PB_FN double kept_sum(const Slice& row, const Ties& ties, u64 at) {
    PB_SHARED_ARRAY(double, slots, 32);
    PB_SHARED_ARRAY(double, blocks, kMaxCluster);
    ExactSum own;
#pragma unroll 1
    for (int v = (int)threadIdx.x; v < row.vectors; v += Slice::kBlock) {
        const words<16> w = row.load(v);
#pragma unroll 1
        for (u32 kept = ties.kept(row, w, v, at); kept; kept &= kept - 1)
            own.add(Slice::Keys::value(Slice::any_lane(w, lowest_bit(kept))));
    }
    const double sum = block_reduce((double)own.hi + (double)own.lo, add_op{}, 0., slots);
    if constexpr (Slice::kCluster) return cluster_reduce(sum, blocks, add_op{});
    else return sum;
}

// out = what is kept / sum, else 0; NaN throughout if the row is bad.
template <class Slice>
PB_FN void write_renormed(const Slice& row, const Ties& ties, const Cut& cut, typename Slice::Element* out) {
    using T = typename Slice::Element;
    const Inverse inverse(cut.sum);
    const bool alike = row.alike(out);
#pragma unroll 1
    for (int v = (int)threadIdx.x; v < row.vectors; v += Slice::kBlock) {
        const words<16> w = row.load(v);
        const u32 kept = ties.kept(row, w, v, cut.at);
        float f[Slice::kLane];
#pragma unroll
        for (int j = 0; j < Slice::kLane; j++) {
            const float value = Slice::Keys::value(Slice::lane(w, j));
            f[j] = cut.bad ? bits_of<float>(0x7fc00000u) : kept >> j & 1 ? inverse.times(value) : 0.f;
        }
        row.store(out, v, pack<T, 16>(f), alike);
    }
}

}  // namespace pb
