// Gated activations of one value, and how elements are dealt to threads.
#pragma once
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

// In the order of the values of the axis `activation`.
enum Activation { kSilu, kGelu, kGeluTanh };

// activation(x) * y. Every activation here is x times a gate between 0 and 1:
//   silu       1 / (1 + exp(-x))
//   gelu       the normal distribution function of x
//   gelu_tanh  1 / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3), which is (1 + tanh(u)) / 2
// The gate of -|x| is found to a relative error of about 1e-6 (f32 roundings of a large exponent add to it), and that of
// |x| is one less it: nothing cancels. A gate may be below the range of f32 and the product still within it, so that a
// small exponential is kept as e * s * s, and s = 2^-96 is multiplied in where nothing leaves the range.
// NaN gives NaN, and -inf does: it is infinity times 0.
// kNear: neither x is beyond kNearSilu nor NaN, so that no small exponential is possible. The bits are the same.
template <int kActivation, bool kNear = false> PB_FN float act_and_mul(float x, float y) {
    constexpr float kLog2e = 1.4426950408889634f;
    const float square = x * x;
    float t;  // the exponential is 2^t
    if constexpr (kActivation == kSilu) t = -kLog2e * fabsf(x);
    else if constexpr (kActivation == kGelu) t = -0.5f * kLog2e * square;
    else t = -2.f * kLog2e * 0.7978845608028654f * fabsf(x) * (1.f + 0.044715f * square);
    const bool tiny = !kNear && t < -110.f;
    const float e = exp2_fast(tiny ? t + 192.f : t);

    float low, high;  // the gates of -|x| and of |x|
    if constexpr (kActivation == kGelu) {
        // The distribution function of -a, divided by the exponential, as a polynomial in z = (a - 4.25) / (a + 4.25):
        // relative error below 6e-7 for a up to 20, beyond which no product is left.
        const float z = 1.f - 8.5f * rcp_fast(fabsf(x) + 4.25f);
        float q = -2.503659e-4f;
        q = q * z + 3.6608128e-4f;
        q = q * z + 2.1585275e-3f;
        q = q * z - 1.2318691e-2f;
        q = q * z + 3.598345e-2f;
        q = q * z - 7.514525e-2f;
        q = q * z + 1.2274712e-1f;
        q = q * z - 1.6290401e-1f;
        q = q * z + 8.935933e-2f;
        low = e * q;
        high = tiny ? 1.f : 1.f - low;
    } else {
        high = rcp_fast(tiny ? 1.f : 1.f + e);
        low = e * high;
    }
    const float s = tiny && x < 0.f ? 0x1p-96f : 1.f;
    return x * (x < 0.f ? low : high) * (y * s) * s;
}

// Whether every value of an access is at most 76 in magnitude: SiLU has no small exponential there.
template <class T, int kBytes> PB_FN bool near_silu(const words<kBytes>& v) {
    constexpr u32 kMost = is_bf16<T> ? 0x4298u : 0x54c0u, kPast = 0x7fffu - kMost;
    u32 beyond = 0;
#pragma unroll
    for (int i = 0; i < v.kCount; i++) beyond |= (v.w[i] & 0x7fff7fffu) + kPast * 0x10001u;
    return (beyond & 0x80008000u) == 0;
}

}  // namespace pb
