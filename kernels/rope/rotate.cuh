// What the rotary embeddings share: which columns a thread turns, and how.
#pragma once
#include "rope/angle.cuh"

namespace pb {

// Heads of one token that a thread takes: their loads are under way together, and they share the angles.
inline constexpr int kHeads = 4;

// The two accesses of a unit: with kLane values in an access, a unit turns kLane pairs, those of the frequencies from
// kLane · unit on.
struct Columns {
    int a, b;
};
template <int kLane> PB_FN Columns turned(int unit, int rotary_dim, bool interleave) {
    if (interleave) return {2 * kLane * unit, 2 * kLane * unit + kLane};
    return {kLane * unit, rotary_dim / 2 + kLane * unit};
}

PB_FN void turn(float& x, float& y, float sine, float cosine) {
    const float t = x * cosine - y * sine;
    y = y * cosine + x * sine;
    x = t;
}

// The values of the accesses a and b of a unit. Interleaved, pairs are neighbours; otherwise one comes from each
// access.
template <int kLane>
PB_FN void rotate(float (&a)[kLane], float (&b)[kLane], const float (&sine)[kLane], const float (&cosine)[kLane],
                  bool interleave) {
    if constexpr (kLane > 1) {
        if (interleave) {
            constexpr int kHalf = kLane / 2;
#pragma unroll
            for (int j = 0; j < kHalf; j++) {
                turn(a[2 * j], a[2 * j + 1], sine[j], cosine[j]);
                turn(b[2 * j], b[2 * j + 1], sine[kHalf + j], cosine[kHalf + j]);
            }
            return;
        }
    }
#pragma unroll
    for (int j = 0; j < kLane; j++) turn(a[j], b[j], sine[j], cosine[j]);
}

// Sines and cosines from a cache: row `position` holds rotary_dim / 2 cosines, then as many sines. A position without a
// row turns nothing.
template <int kLane>
PB_FN void cached(const void* cache, i64 stride, i64 position, i64 positions, int rotary_dim, int first,
                  float (&sine)[kLane], float (&cosine)[kLane]) {
    constexpr int kBytes = kLane == 1 ? 4 : 16, kStep = kBytes / 4;
    const bool known = position >= 0 && position < positions;
    const float* row = (const float*)cache + (known ? position : 0) * stride + first;
#pragma unroll
    for (int j = 0; j < kLane; j += kStep) {
        words<kBytes> c{}, s{};
        if (known) {
            c = ld_nc<kBytes>(row + j);
            s = ld_nc<kBytes>(row + rotary_dim / 2 + j);
        }
#pragma unroll
        for (int i = 0; i < kStep; i++) {
            cosine[j + i] = known ? bits_of<float>(c.w[i]) : 1.f;
            sine[j + i] = known ? bits_of<float>(s.w[i]) : 0.f;
        }
    }
}

// Queries and keys of every token, kVec bytes an access. A thread takes one unit of up to kHeads heads of a token.
// Units behind those that turn copy the columns behind rotary_dim, if there are such. P has the fields of
// pb_apply_rope_params; angles(token, frequency, sine, cosine) gives those of the unit's pairs.
template <class T, int kVec, class P, class Angles> PB_FN void rotate_heads(const P& p, const Angles& angles) {
    constexpr int kLane = kLanes<T, kVec>;
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= p.threads) return;
    const u32 row = index / (u32)p.units, token = row / (u32)p.groups;
    const int unit = (int)(index - row * (u32)p.units), group = (int)(row - token * (u32)p.groups);
    const bool turns = unit < p.turning;
    const int behind = p.rotary_dim + 2 * kLane * (unit - p.turning);
    const Columns at = turns ? turned<kLane>(unit, p.rotary_dim, p.interleave) : Columns{behind, behind + kLane};
    const bool both = turns || at.b < p.head_dim;

    words<kVec> a[kHeads], b[kHeads];
#pragma unroll
    for (int i = 0; i < kHeads; i++) {
        const int head = group + i * p.groups;
        a[i] = b[i] = {};
        if (head >= p.heads) continue;
        const T* from = head < p.q_heads
                            ? (const T*)p.q + (i64)token * p.q_stride + head * p.q_head_stride
                            : (const T*)p.k + (i64)token * p.k_stride + (head - p.q_heads) * p.k_head_stride;
        a[i] = ld_once<kVec>(from + at.a);
        if (both) b[i] = ld_once<kVec>(from + at.b);
    }
    if (turns) {
        float sine[kLane], cosine[kLane];
        angles(token, unit * kLane, sine, cosine);
#pragma unroll
        for (int i = 0; i < kHeads; i++) {
            float x[kLane], y[kLane];
            unpack<T, kVec>(a[i], x);
            unpack<T, kVec>(b[i], y);
            rotate(x, y, sine, cosine, p.interleave);
            a[i] = pack<T, kVec>(x);
            b[i] = pack<T, kVec>(y);
        }
    }
#pragma unroll
    for (int i = 0; i < kHeads; i++) {
        const int head = group + i * p.groups;
        if (head >= p.heads) break;
        T* to = head < p.q_heads
                    ? (T*)p.q_out + (i64)token * p.q_out_stride + head * p.q_out_head_stride
                    : (T*)p.k_out + (i64)token * p.k_out_stride + (head - p.q_heads) * p.k_out_head_stride;
        st<kVec>(to + at.a, a[i]);
        if (both) st<kVec>(to + at.b, b[i]);
    }
}

}  // namespace pb
