// Draws a token from each row. params.h is the contract.
//
// A drawn token is tested by one pass over the weights: the count and the mass of the tokens before it say whether each
// filter keeps it, because every filter keeps a beginning of the order. If it is not kept, the same pass has made the
// sums for the next draw. So most rows take one pass to sum and one to test, and no row is sorted.
#pragma once
#include "parbake/philox.cuh"
#include "sampling/row.cuh"
#include "sampling/sample/params.h"

namespace pb {

enum Verdict { kKept, kRejected, kUnknown };
// What follows: a token is drawn, sums before another key are wanted, or the row is finished.
enum Step : u32 { kDraw, kMeasure, kDone };

// What decides about the tokens of a row; the same in each block that takes part.
struct Decision {
    u32 k;
    float p;
    float floor;  // the least weight that min_p keeps
    bool top_k_first;
    double total;   // mass of the row
    u64 seed, offset;
    u64 candidate;  // the token that was drawn last
    Sums own;       // what comes before it
    // What is known about the mass of the first k tokens: at most k tokens come before `high`, at least k before `low`.
    u64 high, low;
    double least, most;

    PB_FN void start(double mass) {
        total = most = mass;
        least = 0.;
        high = ~0ull;
        low = kLastKey;
    }
    PB_FN bool nothing() const { return !(total > 0. && total < (double)kInf); }
    PB_FN bool below_floor(u64 key) const { return bits_of<float>(key_bits(key)) < floor; }

    // Whether the candidate is kept, as far as it is known.
    PB_FN Verdict judge() const {
        if (own.count == 0) return kKept;
        if (own.count >= k) return kRejected;
        if (p >= 1.f) return kKept;
        if (own.mass < (double)p * (top_k_first ? least : total)) return kKept;
        if (!top_k_first || !(own.mass < (double)p * most)) return kRejected;
        return kUnknown;
    }
    // What follows from the sums before `key`; kMeasure sets where.
    PB_FN Step next(u64& key, const Sums& before) {
        if (key == candidate) own = before;
        if (top_k_first) {
            if (before.count <= k && key < high) high = key, least = before.mass;
            if (before.count >= k && key > low) low = key, most = before.mass;
            if (before.count == k) least = most = before.mass;
        }
        if (below_floor(candidate)) return kDraw;
        const Verdict verdict = judge();
        if (verdict == kKept) return kDone;
        if (verdict == kUnknown) {
            // At a 4096th of the weight while nothing is known below, then in the middle.
            constexpr u64 far = 12ull << 55;
            key = low == kLastKey && high > 2 * far ? high - far : low + (high - low) / 2;
            return kMeasure;
        }
        if (key == candidate) return kDraw;
        key = candidate;  // rejected after a search: the sums before it are made once more
        return kMeasure;
    }
};

// What a tensor holds for a row, or the number that stands for all rows.
template <class T> PB_FN T at_or(const void* many, i64 at, T one) {
    return many ? ((const T*)many)[at] : one;
}

template <class Index, int kSource, bool kHeld, int kBlocks, int kVec> PB_FN void sample(const pb_sample_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(float, tops, kBlocks * kMaxWarps);
    PB_SHARED_ARRAY(Decision, decision, 1);
    PB_SHARED_ARRAY(u64, shared_key, 1);
    PB_SHARED_ARRAY(u32, shared_step, 1);
    const i64 row = (i64)(blockIdx.x / kBlocks);
    const i64 source = p.indices ? (i64)((const Index*)p.indices)[row] : row;
    const bool writes = threadIdx.x == 0 && Row<kSource, kHeld, kBlocks, kVec>::rank() == 0;
    const auto write = [&](u32 index, bool valid) {
        ((Index*)p.tokens)[row] = (Index)index;
        if (p.valid) ((u8*)p.valid)[row] = valid;
    };
    if (source < 0 || source >= p.sources) {
        if (writes) write(0, false);
        return;
    }
    // Small things that are wanted once the row is there.
    const auto ahead = [&](const void* many, int bytes) {
        if (many && threadIdx.x == 0) prefetch((const char*)many + row * bytes);
    };
    ahead(p.top_ks, 4);
    ahead(p.top_ps, 4);
    ahead(p.min_ps, 4);
    ahead(p.seeds, (int)p.seeds_step * 8);
    ahead(p.offsets, (int)p.offsets_step * 8);

    Row<kSource, kHeld, kBlocks, kVec> r((const float*)p.x + source * p.x_stride, nullptr, p.vocab, smem, tops);
    r.load();
    const i32 k = at_or(p.top_ks, row, p.top_k);
    const float top_p = at_or(p.top_ps, row, p.top_p);
    const float min_p = at_or(p.min_ps, row, p.min_p);
    const bool open = k >= p.vocab && top_p >= 1.f && !(min_p > 0.f);  // no filter
    Decision& d = decision[0];
    if (open && warp_id() != 0) return;

    u64 key = kLastKey;  // before which the sums were last made
    u32 draws = 0;
#pragma unroll 1
    for (;;) {
        // Warp 0 of each block decides; all blocks decide alike.
        if (warp_id() == 0) {
            double own;
            const Sums before = r.sums(draws != 0, own);
            const float top = kSource == kLogits || draws ? 1.f : r.greatest();
            if (lane_id() == 0) {
                if (draws == 0) {
                    d.k = k < 1 ? 1u : (u32)k;
                    d.p = top_p;
                    d.floor = min_p > 0.f ? (min_p < 1.f ? min_p : 1.f) * top : 0.f;
                    d.top_k_first = p.top_k_first && k < p.vocab;
                    d.seed = (u64)at_or(p.seeds, row * p.seeds_step, p.seed);
                    d.offset = (u64)at_or(p.offsets, row * p.offsets_step, p.offset);
                    d.start(before.mass);
                }
                u64 to = key;
                Step step = kDraw;
                if (d.nothing()) step = kDone;
                else if (draws) step = d.next(to, before);
                if (step == kDone && writes) write(d.nothing() ? 0u : key_index(d.candidate), !d.nothing());
                if (step == kMeasure) shared_key[0] = to;
                shared_step[0] = step;
            }
            __syncwarp();
            if (shared_step[0] == kDraw) {
                double rest;
                const int s = r.segment_at(uniform_f64(philox(d.seed, d.offset, (u32)row, draws).w[0]), own, rest);
                if (r.owns(s)) {
                    const u64 found = r.token_at(s, rest, key);
                    if (!open) r.publish(shared_key, found);
                    else if (lane_id() == 0) write(key_index(found), true);
                }
            }
            if (open) return;
        }
        r.sync();
        if (shared_step[0] == kDone) return;
        key = shared_key[0];
        if (shared_step[0] == kDraw) {
            draws++;
            if (threadIdx.x == 0) d.candidate = key;
            // Not kept: the next candidates are those that min_p keeps.
            if (d.below_floor(key)) key = order_key(bits_of<u32>(d.floor), ~0u);
        }
        r.measure(key);
    }
}

}  // namespace pb
