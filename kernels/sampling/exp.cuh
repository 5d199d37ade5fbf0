// The exponential of what is at most 0, close to correctly rounded.
#pragma once
#include "parbake/math.cuh"

namespace pb {

// exp(d) for d <= 0; below 2^-126 it is 0. NaN stays.
PB_FN float exp_of(float d) {
    const float t = d * 1.44269504f, y = exp2_fast(t);
    const float lost = fmaf(d, 1.44269504f, -t) + d * 1.92596299e-8f;  // of d * log2(e), in rounding
    return y == 0.f ? 0.f : fmaf(y, lost * 0.693147181f, y);
}

}  // namespace pb
