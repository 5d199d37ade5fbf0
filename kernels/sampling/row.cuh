// A row of weights, over one block or the blocks of a cluster, and sums over it in an order that depends on the row's
// length alone: every tactic draws the same token.
//
// The row is cut into segments of 512. The weights of a segment are added by one warp, in f32; sums of segments are
// added in f64. Each block keeps the sums of all segments.
#pragma once
#include "parbake/cluster.cuh"
#include "parbake/scan.cuh"
#include "parbake/vec.cuh"
#include "sampling/exp.cuh"

namespace pb {

inline constexpr int kSegment = 512;
inline constexpr int kParts = 4;       // accesses of four weights in which a lane takes its share of a segment
inline constexpr int kMaxWarps = 16;   // of a block

// What a row holds.
enum Source {
    kProbs,       // weights; what is not positive weighs nothing
    kLogits,      // the weight is exp(x - maximum)
    kDifference,  // the positive part of one row less another
};

// The order of tokens: by weight, descending, then by index. Who comes first has the greater key.
PB_FN u64 order_key(u32 bits, u32 index) {
    return (u64)bits << 32 | (u32)~index;
}
PB_FN u32 key_bits(u64 key) {
    return (u32)(key >> 32);
}
PB_FN u32 key_index(u64 key) {
    return ~(u32)key;
}

PB_FN int lowest_bit(u32 m) {
#if PB_DEVICE
    return __ffs((int)m) - 1;
#else
    return __builtin_ctz(m);
#endif
}
PB_FN int highest_bit(u32 m) {
#if PB_DEVICE
    return 31 - __clz((int)m);
#else
    return 31 - __builtin_clz(m);
#endif
}

struct Sums {
    double mass;
    u32 count;
};

// kHeld: the block's share of the weights stays in shared memory, and global memory is read once.
template <int kSource, bool kHeld, int kBlocks, int kVec> struct Row {
    const float* x;
    const float* less;  // kDifference: what is subtracted; null: nothing
    float* held;        // [share * kSegment]
    float* mass;        // [segments]
    u32* count;         // [segments]
    float* tops;        // [kBlocks * kMaxWarps]
    int vocab;
    int segments;
    int first, last;  // this block's segments
    float top;        // kLogits: the maximum

    static PB_FN int warps() { return (int)(blockDim.x / 32); }
    static PB_FN int rank() { return kBlocks == 1 ? 0 : (int)cluster_rank(); }
    static PB_FN void sync() {
        if constexpr (kBlocks == 1) __syncthreads();
        else cluster_sync();
    }
    // The element at which part `i` of a lane's share of a segment begins.
    static PB_FN int element(int s, int i) { return s * kSegment + i * 128 + (int)lane_id() * 4; }

    PB_FN Row(const float* row, const float* minus, int n, unsigned char* smem, float* tops_)
        : x(row), less(minus), tops(tops_), vocab(n), top(0.f) {
        segments = (n + kSegment - 1) / kSegment;
        const int share = (segments + kBlocks - 1) / kBlocks;
        first = min_i(segments, rank() * share);
        last = min_i(segments, first + share);
        held = (float*)smem;
        mass = held + (kHeld ? share * kSegment : 0);
        count = (u32*)(mass + segments);
    }

    static PB_FN words<16> four(const float* row, int e, int n, u32 beyond) {
        words<16> w = {{beyond, beyond, beyond, beyond}};
        if constexpr (kVec == 16) {
            if (e < n) w = ld_nc<16>(row + e);  // n is a multiple of four
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (e + j < n) w.w[j] = ld_nc<4>(row + e + j).w[0];
        }
        return w;
    }
    PB_FN words<16> read(int s, int i) const {
        words<16> w = four(x, element(s, i), vocab, kSource == kLogits ? 0xff800000u : 0u);
        if (kSource == kDifference && less) {
            const words<16> b = four(less, element(s, i), vocab, 0u);
#pragma unroll
            for (int j = 0; j < 4; j++) w.w[j] = bits_of<u32>(bits_of<float>(w.w[j]) - bits_of<float>(b.w[j]));
        }
        return w;
    }
    // The weight of what was read. NaN stays, so that it reaches the sum.
    PB_FN float weight(u32 bits) const {
        const float v = bits_of<float>(bits);
        if constexpr (kSource == kLogits) return exp_of(v - top);
        else return v <= 0.f ? 0.f : v;
    }
    // What there is of part i of one of the block's segments: weights, or what was read.
    PB_FN words<16> stored(int s, int i) const {
        return kHeld ? ld<16>(held + element(s - first, i)) : read(s, i);
    }
    PB_FN float weight_of(u32 bits) const { return kHeld ? bits_of<float>(bits) : weight(bits); }
    // All parts of a segment, which is read or else held: whole vectors all at once, single elements part by part.
    template <bool kRead, class F> PB_FN void each_part(int s, F part) const {
        if constexpr (kVec == 16 || (kHeld && !kRead)) {
            words<16> w[kParts];
#pragma unroll
            for (int i = 0; i < kParts; i++) w[i] = kRead ? read(s, i) : stored(s, i);
#pragma unroll
            for (int i = 0; i < kParts; i++) part(i, w[i]);
        } else {
#pragma unroll 1
            for (int i = 0; i < kParts; i++) {
                words<16> w = kRead ? read(s, i) : stored(s, i);
                part(i, w);
            }
        }
    }
    PB_FN void hold(int s, int i, const words<16>& w) const {
        if constexpr (kHeld) st<16>(held + element(s - first, i), w);
    }

    template <class T> static PB_FN void publish(T* own, T v) {
        if constexpr (kBlocks == 1) {
            if (lane_id() == 0) *own = v;
        } else {
            if (lane_id() < kBlocks) cluster_st(own, lane_id(), v);
        }
    }

    // Reads the row once. Afterwards the sums of all segments are in `mass`; kHeld: the weights in `held`.
    PB_FN void load() {
        if constexpr (kBlocks > 1) cluster_arrive();
        const int step = warps();
        float most = kSource == kLogits ? -kInf : 0.f;
        // The memory of other blocks may be written when they have begun.
        bool waiting = kBlocks > 1;
#pragma unroll 1
        for (int s = first + (int)warp_id(); s < last; s += step) {
            float sum = 0.f;
            each_part<true>(s, [&](int i, words<16>& w) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    if constexpr (kSource == kLogits) {
                        most = max_op{}(most, bits_of<float>(w.w[j]));
                    } else {
                        const float v = weight(w.w[j]);
                        w.w[j] = bits_of<u32>(v);
                        most = max_f(most, v);
                        sum += v;
                    }
                }
                hold(s, i, w);
            });
            if (waiting) cluster_wait();
            waiting = false;
            if constexpr (kSource != kLogits) publish(mass + s, warp_sum(sum));
        }
        if (waiting) cluster_wait();
        publish(tops + rank() * step + (int)warp_id(), warp_reduce(most, max_op{}));
        sync();
        if constexpr (kSource == kLogits) {
            top = greatest();
            weigh();
            sync();
        }
    }
    // The maximum of the row: of logits, or of weights unless one is NaN. After load().
    PB_FN float greatest() const {
        float most = kSource == kLogits ? -kInf : 0.f;
        const int n = kBlocks * warps();
        for (int i = (int)lane_id(); i < n; i += 32) most = max_op{}(most, tops[i]);
        return warp_reduce(most, max_op{});
    }
    // Logits become weights.
    PB_FN void weigh() {
#pragma unroll 1
        for (int s = first + (int)warp_id(); s < last; s += warps()) {
            float sum = 0.f;
            each_part<false>(s, [&](int i, words<16>& w) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float v = weight(w.w[j]);
                    w.w[j] = bits_of<u32>(v);
                    sum += v;
                }
                hold(s, i, w);
            });
            publish(mass + s, warp_sum(sum));
        }
    }

    // The least bits of a weight at element e of segment s that comes before `key`.
    static PB_FN u32 least(u64 key, int s, int e) {
        const u32 index = key_index(key), segment = index / kSegment;
        const bool before = (u32)s != segment ? (u32)s < segment : (u32)e < index;
        return key_bits(key) + (before ? 0u : 1u);
    }
    // `mass` and `count` become those of the tokens that come before `key`.
    PB_FN void measure(u64 key) const {
#pragma unroll 1
        for (int s = first + (int)warp_id(); s < last; s += warps()) {
            // Only in one segment of the row does the index of a token matter.
            const bool mixed = (u32)s == key_index(key) / kSegment;
            const u32 from = least(key, s, s * kSegment);
            float sum = 0.f;
            u32 n = 0;
            each_part<false>(s, [&](int i, words<16>& w) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    u32 bits = bits_of<u32>(weight_of(w.w[j]));
                    if (mixed && bits < least(key, s, element(s, i) + j)) bits = 0;
                    const bool in = bits >= from;
                    sum += in ? bits_of<float>(bits) : 0.f;
                    n += in ? 1u : 0u;
                }
            });
            publish(mass + s, warp_sum(sum));
            publish(count + s, warp_reduce(n, add_op{}));
        }
        sync();
    }

    // The following are for one warp.

    // Sums over the row. `count` is not there before measure().
    PB_FN Sums sums(bool counted, double& own) const {
        Sums r{0., 0};
        const int per = (segments + 31) / 32, begin = (int)lane_id() * per, end = min_i(begin + per, segments);
#pragma unroll 4
        for (int s = begin; s < end; s++) r.mass += (double)mass[s];
        if (counted) {
#pragma unroll 4
            for (int s = begin; s < end; s++) r.count += count[s];
        }
        own = r.mass;
        r.mass = warp_reduce(r.mass, add_op{});
        r.count = warp_reduce(r.count, add_op{});
        return r;
    }
    // The segment in which the share u of the mass lies, and how far into it. The sum of all masses is positive.
    PB_FN int segment_at(double u, double own, double& rest) const {
        const int per = (segments + 31) / 32, begin = (int)lane_id() * per, end = min_i(begin + per, segments);
        const double upto = warp_scan(own, add_op{});
        const double target = u * shfl_wide(upto, 31), before = shfl_up_wide(upto, 1);
        // Rounding may leave nothing beyond the target: then it is the last lane that has any mass.
        const u32 some = warp_ballot(own > 0.), beyond = some & warp_ballot(upto > target);
        const int lane = beyond ? lowest_bit(beyond) : highest_bit(some);
        int found = 0;
        double part = 0.;
        if ((int)lane_id() == lane) {
            double at = lane ? before : 0.;
#pragma unroll 1
            for (int s = begin; s < end; s++) {
                if (!(mass[s] > 0.f)) continue;
                found = s;
                part = target - at;
                at += (double)mass[s];
                if (at > target) break;
            }
        }
        rest = shfl_wide(part, lane);
        return shfl(found, lane);
    }
    // The key of the token of segment s before which there is at most `rest` mass, among those that come before `limit`.
    PB_FN u64 token_at(int s, double rest, u64 limit) const {
        const auto weights = [&](int i, float (&v)[4]) {
            const words<16> read = stored(s, i);
            float sum = 0.f;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[j] = weight_of(read.w[j]);
                if (bits_of<u32>(v[j]) < least(limit, s, element(s, i) + j)) v[j] = 0.f;
                sum += v[j];
            }
            return sum;
        };
        float w[4], part[kParts] = {}, all[kParts];
#pragma unroll 1
        for (int i = 0; i < kParts; i++) {
#pragma unroll
            for (int k = 0; k < kParts - 1; k++) part[k] = part[k + 1];
            part[kParts - 1] = weights(i, w);
        }
        // Sums of all parts at once: their steps wait for each other.
#pragma unroll
        for (int i = 0; i < kParts; i++) all[i] = part[i];
#pragma unroll
        for (int m = 16; m; m >>= 1) {
#pragma unroll
            for (int i = 0; i < kParts; i++) all[i] += shfl_xor(all[i], m);
        }
        // As in segment_at(): the last part, lane and token of any weight if rounding leaves nothing beyond.
        int at = 0;
        float own = 0.f;
        double to = rest;
        bool found = false;
#pragma unroll
        for (int i = 0; i < kParts; i++) {
            if (found || !(all[i] > 0.f)) continue;
            at = i;
            own = part[i];
            to = rest;
            found = (double)all[i] > rest;
            rest -= (double)all[i];
        }
        weights(at, w);
        const float upto = warp_scan(own, add_op{}), before = shfl_up(upto, 1);
        const u32 some = warp_ballot(own > 0.f), beyond = some & warp_ballot((double)upto > to);
        const int lane = beyond ? lowest_bit(beyond) : highest_bit(some);
        u64 key = 0;
        float sum = lane_id() ? before : 0.f;
        bool open = true;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (!open || !(w[j] > 0.f)) continue;
            key = order_key(bits_of<u32>(w[j]), (u32)(element(s, at) + j));
            sum += w[j];
            open = !((double)sum > to);
        }
        return shfl_wide(key, lane);
    }
    PB_FN bool owns(int s) const { return s >= first && s < last; }
};

// Every token that weighs anything comes before it.
inline constexpr u64 kLastKey = 0xffffffffull;

}  // namespace pb
