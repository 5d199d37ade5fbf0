// The softmax of flash attention: rows of scores come in tiles, the output is rescaled where a greater score appears.
#pragma once
#include "parbake/math.cuh"
#include "parbake/types.cuh"
#include "parbake/vec.cuh"
#include "parbake/warp.cuh"

namespace pb {

// Two rows of an mma.sync accumulator: those of elements 0, 1 and of elements 2, 3. `max` is in units of the scores,
// `sum` is this thread's part.
struct Softmax {
    float max[2] = {-kInf, -kInf}, sum[2] = {0.f, 0.f};

    // Scores become 2^(scale (s - max)), o is rescaled.
    template <int kColumns, int kOut>
    PB_FN void take(float (&s)[kColumns][4], float (&o)[kOut][4], float scale PB_AT) {
        float change[2];
        if (exponentials(s, change, scale PB_PASS_AT)) rescale(o, change);
    }
    // The first half: also what o is to be multiplied with, and whether that is other than 1 for any row of the warp.
    template <int kColumns> PB_FN bool exponentials(float (&s)[kColumns][4], float (&change)[2], float scale PB_AT) {
        bool changed = false;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = max[h];
#pragma unroll
            for (int j = 0; j < kColumns; j++) m = max_f(m, max_f(s[j][2 * h], s[j][2 * h + 1]));
            m = max_f(m, shfl_xor(m, 1, kFullMask PB_PASS_AT));
            m = max_f(m, shfl_xor(m, 2, kFullMask PB_PASS_AT));
            // A row that has seen no key yet: exponents are -inf, not NaN.
            const float base = m == -kInf ? 0.f : m * scale;
            changed |= m != max[h];
            change[h] = m == max[h] ? 1.f : exp2_fast((max[h] - m) * scale);
            max[h] = m;
            float add = 0.f;
#pragma unroll
            for (int j = 0; j < kColumns; j++) {
                s[j][2 * h] = exp2_fast(s[j][2 * h] * scale - base);
                s[j][2 * h + 1] = exp2_fast(s[j][2 * h + 1] * scale - base);
                add += s[j][2 * h] + s[j][2 * h + 1];
            }
            sum[h] = sum[h] * change[h] + add;
        }
        // Most tiles bring no greater score to any row of the warp.
        return warp_ballot(changed, kFullMask PB_PASS_AT) != 0;
    }
    template <int kOut> static PB_FN void rescale(float (&o)[kOut][4], const float (&change)[2]) {
#pragma unroll
        for (int j = 0; j < kOut; j++) {
            o[j][0] *= change[0];
            o[j][1] *= change[0];
            o[j][2] *= change[1];
            o[j][3] *= change[1];
        }
    }
    // After the last tile: the sums of whole rows.
    PB_FN void finish() {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h] += shfl_xor(sum[h], 1);
            sum[h] += shfl_xor(sum[h], 2);
        }
    }
    PB_FN float lse(int h, float scale) const { return sum[h] == 0.f ? -kInf : max[h] * scale + log2f(sum[h]); }
};

// The factor of the output and the new lse of a row whose softmax has one more term, which leads to nothing.
PB_FN float sink(const void* sinks, int head, float& lse) {
    if (!sinks) return 1.f;
    const float s = bits_of<float>(ld_nc<4>((const float*)sinks + head).w[0]) * kLog2E;
    const float max = max_f(lse, s);
    if (max == -kInf) return 1.f;
    const float kept = exp2_fast(lse - max), sum = kept + exp2_fast(s - max);
    lse = max + log2f(sum);
    return kept / sum;
}

}  // namespace pb
