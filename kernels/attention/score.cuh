// What becomes of a score between its product and the softmax. A variant has
//   kPlain           nothing does: scores are scaled with scale_log2 inside the softmax
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
    float slope;         // of the head, times log2(e), or 0
    // The position of the query among the keys.
    PB_FN int position() const { return query + kv_len - qo_len; }
};

struct PlainScore {
    static constexpr bool kPlain = true;
};

// A soft cap, ALiBi, and a mask of bits, each if it is given.
struct ModifiedScore {
    static constexpr bool kPlain = false;
    template <class P> static PB_FN float score(float x, const ScorePlace& at, const P& p) {
        if (p.cap_out != 0.f) {
            // cap · tanh(x scale / cap) from the exponential: 1 − 2 / (1 + e^2x), right at both ends.
            const float e = exp2_fast(x * p.cap_in);
            x = p.cap_out - 2.f * p.cap_out * rcp_fast(1.f + e);
        } else {
            x *= p.scale_log2;
        }
        return x + at.slope * (float)(at.key - at.position());
    }
    template <class P> static PB_FN bool sees(const ScorePlace& at, const P& p) {
        if (!p.mask) return true;
        const i64 bytes = (i32)ld_nc<4>((const i32*)p.mask_indptr + at.request).w[0];
        const i64 bit = (i64)at.query * at.kv_len + at.key;
        return (ld_nc<1>((const u8*)p.mask + bytes + (bit >> 3)).w[0] >> (bit & 7) & 1) != 0;
    }
};

// A caller's own, which knows natural units and nothing of `p` but the values of its parameters.
template <class Own> struct CustomScore {
    static constexpr bool kPlain = false;
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
