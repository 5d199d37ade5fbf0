// What becomes of a score between its product and the softmax. A variant has
//   kPlain           nothing does: scores are scaled with scale_log2 inside the softmax
//   kByTile          whether it takes the scores of two rows at once, by apply(s, above, below, p), or one by one, by
//   score(x, at, p)  the score, times log2(e); x is q k, not scaled yet
//   sees(at, p)      whether the query sees the key; what `causal` and `window` hide is hidden in any case
// What snippets are told of these names stands in docs/attention.md.
#pragma once
#include "attention/work.cuh"
#include "parbake/math.cuh"

namespace pb {

// Which score it is.
struct ScorePlace {
    int request, head;   // of queries
    int query, key;      // of the request
    int qo_len, kv_len;  // of the request
    // The position of the query among the keys.
    PB_FN int position() const { return query + kv_len - qo_len; }
};

struct PlainScore {
    static constexpr bool kPlain = true;
};

// A soft cap, ALiBi, and a mask of bits, each if it is given: one after the other for a tile of scores, so that what is not
// given costs a tile one question. Elements 0, 1 and elements 2, 3 of an accumulator are two rows, `above` and `below`.
struct ModifiedScore {
    static constexpr bool kPlain = false, kByTile = true;
    // cap · tanh(x scale / cap) from the exponential: 1 − 2 / (1 + e^2x), right at both ends.
    template <class P> static PB_FN float cap(float x, const P& p) {
        return p.cap_out - 2.f * p.cap_out * rcp_fast(1.f + exp2_fast(x * p.cap_in));
    }
    template <int kColumns, class P>
    static PB_FN void apply(float (&s)[kColumns][4], const ScorePlace& above, const ScorePlace& below, const P& p) {
        if (p.cap_out != 0.f) {
#pragma unroll
            for (int j = 0; j < kColumns; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[j][e] = cap(s[j][e], p);
        } else {
#pragma unroll
            for (int j = 0; j < kColumns; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[j][e] *= p.scale_log2;
        }
        if (p.alibi_slopes) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const ScorePlace& at = h ? below : above;
                const float slope = bits_of<float>(ld_nc<4>((const float*)p.alibi_slopes + at.head).w[0]) * kLog2E;
                const float away = (float)(at.key - at.position());
#pragma unroll
                for (int j = 0; j < kColumns; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) s[j][2 * h + e] += slope * (away + (float)(8 * j + e));
            }
        }
        if (p.mask) {
            const u8* bits = (const u8*)p.mask + (i32)ld_nc<4>((const i32*)p.mask_indptr + above.request).w[0];
#pragma unroll 1
            for (int h = 0; h < 2; h++) {
                const i64 first = (i64)(h ? below.query : above.query) * above.kv_len + above.key;
                u32 seen = 0;  // of the columns of this row, the lowest first
#pragma unroll
                for (int i = 0; i < 2 * kColumns; i++) {
                    const int column = i / 2 * 8 + i % 2;
                    // Keys that do not exist are hidden in any case.
                    if (above.key + column >= above.kv_len) continue;
                    const i64 bit = first + column;
                    seen |= (ld_nc<1>(bits + (bit >> 3)).w[0] >> (bit & 7) & 1u) << i;
                }
#pragma unroll
                for (int i = 0; i < 2 * kColumns; i++) {
                    const bool hidden = (seen >> i & 1u) == 0;
                    if (hidden && h == 0) s[i / 2][i % 2] = -kInf;
                    if (hidden && h == 1) s[i / 2][2 + i % 2] = -kInf;
                }
            }
        }
    }
};

// A caller's own, which knows natural units and nothing of `p` but the values of its parameters.
template <class Own> struct CustomScore {
    static constexpr bool kPlain = false, kByTile = false;
    template <class P> static PB_FN float score(float x, const ScorePlace& at, const P& p) {
        // It may read memory by the key.
        if (at.key >= at.kv_len) return x;
        constexpr float kLn2 = 0.693147180559945309f;
        return Own::score(x * (p.scale_log2 * kLn2), at, p.user) * kLog2E;
    }
    template <class P> static PB_FN bool sees(const ScorePlace& at, const P& p) {
        return Own::sees(at, p.user);
    }
};
// The value of a parameter of a snippet.
template <class T> struct Given;
template <> struct Given<float> {
    static PB_FN float of(pb_u64 bits) {
        return bits_of<float>((u32)bits);
    }
};
template <> struct Given<int> {
    static PB_FN int of(pb_u64 bits) {
        return (int)bits;
    }
};
template <class T> struct Given<const T*> {
    static PB_FN const T* of(pb_u64 bits) {
        return (const T*)bits;
    }
};

}  // namespace pb
