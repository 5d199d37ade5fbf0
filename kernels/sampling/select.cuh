// Which elements of a row are kept: the greatest ones, so many or of so much mass, among equals the first or the last.
//
// Elements are ordered by key and then by index, as one integer: key above, `tie` below. Digits of it are counted from
// the top; the digit in which the limit falls is fixed, and those that agree so far are counted by the next digit, until
// all that are left are kept. Masses are sums of integers, per digit of one exponent: exact, whoever adds first. So
// nothing depends on the order of atomics, and nothing on how many elements are equal.
#pragma once
#include "parbake/atomic.cuh"
#include "parbake/scan.cuh"
#include "sampling/row_keys.cuh"

namespace pb {

PB_FN int lowest_bit(u32 m) {
#if PB_DEVICE
    return __ffs((int)m) - 1;
#else
    return __builtin_ctz(m);
#endif
}
PB_FN u32 count_bits(u32 m) {
#if PB_DEVICE
    return (u32)__popc(m);
#else
    return (u32)__builtin_popcount(m);
#endif
}

// Kept is what is not less than `at`; elements of key 0 are not.
struct Cut {
    u64 at;
    double sum;  // of what is kept; only where mass was asked for
    bool bad;    // an element had the key kBad
};

// The order of equal keys: `tie` is greater for what comes first.
struct Ties {
    int last;   // the last column of a row of full length
    int bits;   // that hold it
    bool late;  // greater indices come first
    PB_FN u32 of(int c) const { return (u32)(late ? c : last - c); }
    PB_FN int column(u32 tie) const { return late ? (int)tie : last - (int)tie; }
    PB_FN u64 join(u32 key, int c) const { return (u64)key << bits | of(c); }
    PB_FN u32 key(u64 joined) const { return (u32)(joined >> bits); }
    PB_FN u32 tie(u64 joined) const { return (u32)(joined & ((1ull << bits) - 1)); }
    PB_FN u64 everything() const { return 1ull << bits; }
    PB_FN bool kept(u32 key_, int c, u64 at) const {
        const u32 least = key(at);
        return key_ > least || (key_ == least && of(c) >= tie(at));
    }
    // One bit for each lane of a vector of keys.
    template <class Slice> PB_FN u32 kept(const Slice& row, const words<16>& w, int v, u64 at) const {
        const u32 least = key(at);
        u32 above = 0, level = 0;
#pragma unroll
        for (int j = 0; j < Slice::kLane; j++) {
            const u32 key_ = Slice::lane(w, j);
            if (key_ > least) above |= 1u << j;
            if (key_ == least) level |= 1u << j;
        }
#pragma unroll 1
        for (; level; level &= level - 1) {
            const int j = lowest_bit(level);
            if (of(row.at(v) + j) >= tie(at)) above |= 1u << j;
        }
        return above;
    }
};

// One word or two.
template <int kWords> struct Loads {
    u32 word;
};
template <> struct Loads<2> {
    u64 word;
};

// kDigit: bits of a digit, at least those of an exponent for kMass. `list` is shared and holds kListed values.
template <class Slice, int kDigit, bool kMass> struct Selection {
    using Keys = typename Slice::Keys;
    static constexpr int kBins = 1 << kDigit, kBlock = Slice::kBlock, kEach = kBins / kBlock;
    static constexpr int kTop = Keys::kBits - kDigit;          // below the first digit of a key
    static constexpr int kWords = (kMass ? 3 : 1) * kBins + 2;  // counts; sums of the digits below, and their carries; bad
    static_assert(kEach >= 1 && kTop >= 0 && kDigit >= 8, "a bin for every thread, a digit in every key");
    static constexpr int kListed = 1024;

    const Slice& row;
    const Ties& ties;
    u64* list;

    struct Found {
        u64 prefix;
        double above, mass;  // mass of what is greater, and of this bin
        u32 before, count;   // counts of the same
        u32 bad;
    };

    // One more element in a bin; `low` is what its key has below the digit.
    static PB_FN void add(u32* bins, u32 digit, u32 low) {
        atomic_add_relaxed(bins + digit, 1u);
        if constexpr (kMass) {
            const u32 old = atomic_add_relaxed(bins + kBins + digit, low);
            if (old + low < old) atomic_add_relaxed(bins + 2 * kBins + digit, 1u);
        }
    }
    // kEach words of all blocks, added; with kWide those that lie kBins further as their upper halves.
    template <bool kWide> static PB_FN void gather(const u32* at, u64 (&sum)[kEach]) {
        auto word = [](u32 lo, u32 hi) { return kWide ? (u64)hi << 32 | lo : (u64)lo; };
#pragma unroll
        for (int i = 0; i < kEach; i++) sum[i] = 0;
        if constexpr (!Slice::kCluster) {
#pragma unroll
            for (int i = 0; i < kEach; i++) sum[i] = word(at[i], kWide ? at[kBins + i] : 0u);
        } else {
            constexpr int kFlight = 4, kParts = kWide ? 2 : 1;
            // Words come in pairs where there are pairs.
            constexpr int kPair = kEach % 2 == 0 ? 2 : 1;
            using Load = decltype(Loads<kPair>::word);
            const int ranks = Slice::ranks();
#pragma unroll 1
            for (int r = 0; r < ranks; r += kFlight) {
                Load v[kFlight][kEach / kPair][kParts];
#pragma unroll
                for (int f = 0; f < kFlight; f++)
#pragma unroll
                    for (int i = 0; i < kEach / kPair; i++)
#pragma unroll
                        for (int h = 0; h < kParts; h++)
                            v[f][i][h] = cluster_ld((const Load*)(at + h * kBins) + i, (u32)min_i(r + f, ranks - 1));
#pragma unroll
                for (int f = 0; f < kFlight; f++)
                    if (r + f < ranks) {
#pragma unroll
                        for (int i = 0; i < kEach; i++) {
                            const Load lo = v[f][i / kPair][0], hi = v[f][i / kPair][kParts - 1];
                            const int shift = i % kPair * 32;
                            sum[i] += word((u32)(lo >> shift), (u32)(hi >> shift));
                        }
                    }
            }
        }
    }

    // The bin in which the element number `need` falls, or that in which the mass from above reaches `mass`, which at
    // `first` is a share of all. False: the bins hold less. `below`: bits of the key below the digit.
    PB_FN bool find(const u32* bins, u64 prefix, int width, int below, u32 need, double& mass, bool by_mass, bool first,
                    u32* slots, double* wide, Found* found) const {
        const int bin = kBins - ((int)threadIdx.x + 1) * kEach;  // thread 0 has the greatest digits
        u64 count[kEach];
        gather<false>(bins + bin, count);
        u32 own = 0, all;
#pragma unroll
        for (int i = 0; i < kEach; i++) own += (u32)count[i];
        u32 before = block_scan(own, add_op{}, 0u, slots, all) - own;
        if constexpr (!kMass) {
            if (need > all) return false;
            if (before < need && need <= before + own) {
#pragma unroll
                for (int i = kEach - 1; i >= 0; i--) {
                    const u32 c = (u32)count[i];
                    if (before < need && need <= before + c)
                        *found = {prefix << width | (u32)(bin + i), 0., 0., before, c, 0u};
                    before += c;
                }
            }
            __syncthreads();
            return true;
        } else {
            u64 low[kEach];
            double part[kEach], weight = 0., total;
            if (by_mass) gather<true>(bins + kBins + bin, low);
#pragma unroll
            for (int i = 0; i < kEach; i++) {
                const u32 key = (u32)((prefix << width | (u32)(bin + i)) << below);
                part[i] = by_mass && count[i] ? (double)count[i] * (double)Keys::value(key) +
                                                    (double)low[i] * Keys::unit(key)
                                              : 0.;
                weight += part[i];
            }
            double above = block_scan(weight, add_op{}, 0., wide, total) - weight;
            if (first) mass *= total;
            bool here = false;
            Found f{};
#pragma unroll
            for (int i = kEach - 1; i >= 0; i--) {
                const u32 c = (u32)count[i];
                const bool reached = by_mass ? above + part[i] >= mass : before < need && need <= before + c;
                if (!here && c && reached) {
                    here = true;
                    f = {prefix << width | (u32)(bin + i), above, part[i], before, c, 0u};
                }
                above += part[i];
                before += c;
            }
            // Rounding may let several threads say so: the first one counts. Or none.
            const u32 votes = warp_ballot(here);
            if (lane_id() == 0) slots[32 + warp_id()] = votes;
            __syncthreads();
            const u32 warps = warp_ballot(lane_id() < kBlock / 32 && slots[32 + lane_id()]);
            const u32 warp_mask = (1u << warp_id()) - 1, lane_mask = (1u << lane_id()) - 1;
            if (here && !(warps & warp_mask) && !(votes & lane_mask)) *found = f;
            if (threadIdx.x == 0 && !warps) found->mass = total;
            __syncthreads();
            return warps != 0;
        }
    }

    // Brings the row's keys into shared memory and finds the limit: of `need` elements, or kMass: of the share `mass` of
    // the whole mass.
    // All blocks of a cluster must be there until sync() has been called once more.
    PB_FN Cut operator()(u32 need, double mass) const {
        PB_SHARED_ARRAY(u64, space, kWords);  // two sets of bins, in turn
        PB_SHARED_ARRAY(u32, slots, 64);
        PB_SHARED_ARRAY(double, wide, 32);
        PB_SHARED_ARRAY(Found, found, 1);
        PB_SHARED_ARRAY(u32, listed, 1);
        u32* const buffer = (u32*)space;
        for (int i = (int)threadIdx.x; i < kWords; i += kBlock) buffer[i] = 0;
        if (threadIdx.x == 0) listed[0] = 0;
        row.stage();
        __syncthreads();

        const int bits = ties.bits;
        bool by_mass = kMass, use_list = false;
        u64 prefix = 0;
        u32 top = 0;
        double above = 0.;
        int width = kDigit, shift = kTop + bits;  // the digit at work
#pragma unroll 1
        for (int pass = 0;; pass++) {
            u32* const bins = buffer + (pass & 1) * kWords;
            const int below = shift > bits ? shift - bits : 0;
            auto low = [&](u32 key) { return by_mass ? key & ((1u << below) - 1) : 0u; };
            auto take = [&](u64 v) {
                if (v >> (shift + width) == prefix)
                    add(bins, (u32)(v >> shift) & ((1u << width) - 1), low(ties.key(v)));
            };
            if (pass == 1) use_list = buffer[top] <= (u32)kListed;
            if (pass > 1 && use_list) {
                const int n = (int)listed[0];
#pragma unroll 1
                for (int i = (int)threadIdx.x; i < n; i += kBlock) take(list[i]);
            } else {
#pragma unroll 1
                for (int v = (int)threadIdx.x; v < row.vectors; v += kBlock) {
                    const words<16> w = row.load(v, pass == 0);
                    if (pass == 0) {
#pragma unroll
                        for (int j = 0; j < Slice::kLane; j++) {
                            const u32 key = Slice::lane(w, j);
                            if (!key) continue;
                            add(bins, key >> kTop, low(key));
                            if constexpr (Keys::kChecked)
                                if (key == Keys::kBad) atomic_add_relaxed(bins + kWords - 1, 1u);
                        }
                    } else {
                        u32 some = 0;
#pragma unroll
                        for (int j = 0; j < Slice::kLane; j++) {
                            const u32 key = Slice::lane(w, j);
                            if (key && key >> kTop == top) some |= 1u << j;
                        }
#pragma unroll 1
                        for (; some; some &= some - 1) {
                            const int j = lowest_bit(some);
                            const u64 joined = ties.join(Slice::any_lane(w, j), row.at(v) + j);
                            if (pass == 1 && use_list) list[atomic_add_relaxed(listed, 1u)] = joined;
                            take(joined);
                        }
                    }
                }
            }
            Slice::sync();
            // Nobody reads the other bins any more.
            for (int i = (int)threadIdx.x; i < kWords; i += kBlock) buffer[(pass & 1 ? 0 : kWords) + i] = 0;
            if constexpr (Keys::kChecked) {
                if (pass == 0) {
                    u32 bad = 0;
                    if constexpr (!Slice::kCluster) bad = bins[kWords - 1];
                    else if ((int)lane_id() < Slice::ranks()) bad = cluster_ld(bins + kWords - 1, lane_id());
                    if (warp_ballot(bad != 0)) return {0, 0., true};
                }
            }
            if (!find(bins, prefix, width, below, need, mass, by_mass, pass == 0, slots, wide, found)) {
                const u64 at = pass ? prefix << (shift + width) : 0;
                return {at > ties.everything() ? at : ties.everything(), above + (kMass ? found[0].mass : 0.), false};
            }
            const Found f = found[0];
            prefix = f.prefix;
            if (pass == 0) top = (u32)prefix;
            bool done = false;
            if (!by_mass) {
                need -= f.before;
                done = need == f.count;
            } else if constexpr (kMass) {
                above += f.above;
                mass -= f.above;
                if (f.count == 1) {
                    above += f.mass;
                    done = true;
                } else if (shift == bits) {  // equal elements: as many as it takes
                    const double each = Keys::value(ties.key(prefix << shift));
                    double m = floor(mass / each);
                    if (m * each < mass) m += 1.;
                    if ((m - 1.) * each >= mass) m -= 1.;
                    m = m < 1. ? 1. : m > (double)f.count ? (double)f.count : m;
                    need = (u32)m;
                    above += m * each;
                    by_mass = false;
                    done = need == f.count;
                }
            }
            if (done) {
                const u64 at = prefix << shift;
                return {at > ties.everything() ? at : ties.everything(), above, false};
            }
            width = min_i(kDigit, by_mass ? shift - bits : shift);
            shift -= width;
        }
    }
};

}  // namespace pb
