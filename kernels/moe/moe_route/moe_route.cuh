// The k best experts of each token. params.h is the contract.
#pragma once
#include "moe/choose.cuh"
#include "moe/moe_route/params.h"
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

enum Scoring { kSoftmax, kSigmoid, kLogit };

// What a score is made of: the greatest logit of the row and the reciprocal of its sum, for softmax.
struct Scores {
    int scoring;
    float top, inverse;
    PB_FN float of(float x) const {
        if (scoring == kSoftmax) return exp2_fast((x - top) * kLog2E) * inverse;
        if (scoring == kSigmoid) return rcp_fast(1.f + exp2_fast(-x * kLog2E));
        return x;
    }
};
// A row of -inf has a sum of 0: its scores are 0.
PB_FN float inverse_of(float sum) {
    return sum > 0.f ? 1.f / sum : 0.f;
}

template <class T> PB_FN float logit(const T* row, int e) {
    float v[1];
    unpack<T, sizeof(T)>(ld_nc<sizeof(T)>(row + e), v);
    return v[0];
}

// Takes away the keys of all groups but the best ones.
template <int kEach> PB_FN void keep_groups(Held<kEach>& held, const pb_moe_route_params& p) {
    u32 mine = 0;  // lane g has the key of group g
#pragma unroll 1
    for (int g = 0; g < p.groups; g++) {
        u32 first = 0, second = 0;
        held.each([&](int e, u32 k) {
            if (quotient((u32)e, p.magic, p.shift) != (u32)g) return;
            second = k > first ? first : k > second ? k : second;
            first = k > first ? k : first;
        });
        u32 best = warp_greatest(first);
        if (p.group_best == 2) {
            // One lane gives up its best one.
            const u32 owners = warp_ballot(first == best);
            const bool gives = (owners & (0u - owners)) == 1u << lane_id();
            const u32 next = warp_greatest(gives ? second : first);
            // A group of one expert has no second.
            if (next) best = key_of(value_of(best) + value_of(next));
        }
        if ((int)lane_id() == g) mine = best;
    }
    int before = 0;
#pragma unroll 1
    for (int g = 0; g < p.groups; g++) {
        const u32 other = shfl(mine, g);
        before += other > mine || (other == mine && g < (int)lane_id());
    }
    const u32 kept = warp_ballot((int)lane_id() < p.groups && before < p.kept_groups);
    held.each([&](int e, u32& k) {
        if (!(kept >> (quotient((u32)e, p.magic, p.shift) & 31u) & 1u)) k = 0;
    });
}

// A warp takes a token. It chooses by logits where scores are in the same order, and scores need not be told apart then.
template <class T, int kEach, int kBlock> PB_FN void moe_route(const pb_moe_route_params& p) {
    PB_DYN_SMEM(smem);
    const i64 token = (i64)blockIdx.x * (kBlock / 32) + warp_id();
    if (token >= p.tokens) return;
    const T* row = (const T*)p.logits + token * p.logits_stride;
    Held<kEach> held;
    if constexpr (kEach == 0) held = {(u32*)smem + (i64)warp_id() * p.experts, p.experts};
    u32 top = 0;
    bool strange = false;
    held.each([&](int e, u32& k) {
        k = 0;
        if (e >= p.experts) return;
        const float x = logit(row, e);
        strange = strange || x != x;
        k = key_of(x);
        top = k > top ? k : top;
    });
    strange = warp_ballot(strange) != 0;
    Scores scores = {p.scoring, 0.f, 1.f};
    if (p.scoring == kSoftmax) {
        const float most = value_of(warp_greatest(top));
        scores.top = most == -kInf ? 0.f : most;
        float sum = 0.f;
        held.each([&](int, u32 k) { sum += k ? scores.of(value_of(k)) : 0.f; });
        scores.inverse = inverse_of(warp_sum(sum));
    }
    if (p.bias || (p.groups > 1 && p.group_best > 1)) {
        held.each([&](int e, u32& k) {
            if (!k) return;
            const float bias = bits_of<float>(ld_nc_or(p.bias, e, 0u));
            k = key_of(scores.of(value_of(k)) + bias);
        });
    }
    if (p.groups > 1) keep_groups(held, p);

    int mine = 0;  // lane j has the expert that was chosen as number j
#pragma unroll 1
    for (int j = 0; j < p.k; j++) {
        const Best best = greatest(held);
        if ((int)lane_id() == j) mine = (int)best.element;
        held.each([&](int e, u32& k) {
            if ((u32)e == best.element) k = 0;
        });
    }
    const bool chosen = (int)lane_id() < p.k;
    const float x = chosen ? logit(row, mine) : -kInf;
    float w;
    if (p.scoring == kLogit) {
        const float most = warp_max(x);
        w = exp2_fast((x - (most == -kInf ? 0.f : most)) * kLog2E);
        w *= inverse_of(warp_sum(chosen ? w : 0.f));
    } else {
        w = scores.of(x);
        const float sum = warp_sum(chosen ? w : 0.f);
        if (p.renormalize) w = w / (sum + 1e-20f);
    }
    if (strange) w = bits_of<float>(0x7fffffffu);
    if (!chosen) return;
    st<4>((float*)p.weights + token * p.weights_stride + lane_id(), {{bits_of<u32>(w * p.scale)}});
    st<4>((i32*)p.ids + token * p.ids_stride + lane_id(), {{(u32)mine}});
}

}  // namespace pb
