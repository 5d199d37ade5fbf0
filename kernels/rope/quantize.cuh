// Rotary embedding from a cache of sines and cosines, conversion to FP8, and, for keys and values, the way to a page.
#pragma once
#include "page/slot.cuh"
#include "parbake/fp8.cuh"
#include "rope/rotate.cuh"

namespace pb {

// Heads of one part of a token that a thread takes: where FP8 is rounded in software, more of them take long to
// compile.
inline constexpr int kQuantizedHeads = 2;

// The parts of a token, in this order: q and k that turn, q and k that do not, v. A thread takes one unit, two accesses
// of kVec bytes, of some heads of one part. kPaged: k and v go to the slots of their tokens, else to rows like q. P has
// the fields of pb_rope_quantize_append_params; without kPaged, those of pb_rope_quantize_params.
template <class T, class Q, class Index, int kVec, bool kPaged, class P> PB_FN void rope_quantize(const P& p) {
    constexpr int kLane = kLanes<T, kVec>, kParts = (int)(sizeof(p.from) / sizeof(p.from[0]));
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= p.threads) return;
    const u32 token = index / (u32)p.items;
    int item = (int)(index - token * (u32)p.items), part = 0;
#pragma unroll
    for (int i = 1; i < kParts; i++) part += item >= p.first[i];
    item -= p.first[part];
    const int unit = item % p.units[part], group = item / p.units[part];
    const bool turns = part < 2, key_or_value = part == 1 || part > 2;
    const Columns at = turns ? turned<kLane>(unit, p.rotary_dim, p.interleave)
                             : Columns{2 * kLane * unit, 2 * kLane * unit + kLane};
    const bool both = turns || at.b < p.columns[part];
    const int heads = p.heads[part], groups = p.groups[part];

    words<kVec> a[kQuantizedHeads], b[kQuantizedHeads];
    const T* from = (const T*)p.from[part] + (i64)token * p.from_stride[part];
#pragma unroll
    for (int i = 0; i < kQuantizedHeads; i++) {
        const int head = group + i * groups;
        a[i] = b[i] = {};
        if (head >= heads) continue;
        a[i] = ld_once<kVec>(from + head * p.from_head_stride[part] + at.a);
        if (both) b[i] = ld_once<kVec>(from + head * p.from_head_stride[part] + at.b);
    }
    Q* to = (Q*)p.to[part];
    if constexpr (kPaged) {
        const Slot s = key_or_value ? slot(p, token) : Slot{token, 0};
        if (s.page < 0) return;
        to += s.page * p.to_stride[part] + s.entry * p.to_entry_stride[part];
    } else {
        to += (i64)token * p.to_stride[part];
    }
    float sine[kLane], cosine[kLane];
    if (turns) {
        const i64 position = ld_index<Index>(p.pos_ids, token);
        cached(p.cache, p.cache_stride, position, p.max_position, p.rotary_dim, unit * kLane, sine, cosine);
    }
    const float scale = key_or_value ? p.scale_kv : p.scale_q;
#pragma unroll
    for (int i = 0; i < kQuantizedHeads; i++) {
        const int head = group + i * groups;
        if (head >= heads) break;
        float x[kLane], y[kLane];
        unpack<T, kVec>(a[i], x);
        unpack<T, kVec>(b[i], y);
        if (turns) rotate(x, y, sine, cosine, p.interleave);
#pragma unroll
        for (int j = 0; j < kLane; j++) {
            x[j] *= scale;
            y[j] *= scale;
        }
        Q* out = to + head * p.to_head_stride[part];
        st<kLane>(out + at.a, pack<Q, kLane>(x));
        if (both) st<kLane>(out + at.b, pack<Q, kLane>(y));
    }
}

}  // namespace pb
