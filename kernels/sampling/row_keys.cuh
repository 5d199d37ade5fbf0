// A row as keys: unsigned integers in the order of the elements. One block takes the row, or the blocks of a cluster
// take a slice each. Keys stay in shared memory as far as it reaches; what does not fit is read again when needed.
#pragma once
#include "parbake/cluster.cuh"
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

template <class T> inline constexpr u32 kInfBits = sizeof(T) == 4 ? 0x7f800000u : is_bf16<T> ? 0x7f80u : 0x7c00u;

// Any values. NaN is greater than everything and equal to NaN, -0 equals +0. No element has key 0.
template <class T> struct OrderedKeys {
    static constexpr int kBits = 8 * (int)sizeof(T);
    static constexpr u32 kSign = 1u << (kBits - 1), kMagnitude = kSign - 1;
    static constexpr u32 kZero = kSign, kNaN = kSign | kMagnitude;
    static constexpr bool kChecked = false;

    static PB_FN u32 of(u32 bits) {
        const u32 magnitude = bits & kMagnitude;
        const u32 key = bits & kSign ? ~bits & kNaN : bits | kSign;
        return magnitude > kInfBits<T> ? kNaN : magnitude == 0 ? kZero : key;
    }
    // Two 16-bit keys at once, if neither is NaN or -0.
    static PB_FN bool plain(u32 w) {
        const u32 nan = (w & 0x7fff7fffu) + (0x7fffu - kInfBits<T>) * 0x10001u, z = w ^ 0x80008000u;
        return ((nan | ((z - 0x10001u) & ~z)) & 0x80008000u) == 0;
    }
    static PB_FN u32 of_pair(u32 w) { return w ^ (0x80008000u | (w >> 15 & 0x10001u) * 0xffffu); }
    // The element's bits; of zero and of NaN it is not said which one it was.
    static PB_FN bool unique(u32 key) { return key != kZero && key != kNaN; }
    static PB_FN u32 bits(u32 key) { return key & kSign ? key & kMagnitude : ~key & kNaN; }
};

// Probabilities. What is not positive has key 0 and so is never kept; NaN and infinity have the greatest key, kBad.
template <class T> struct PositiveKeys {
    static constexpr int kBits = 8 * (int)sizeof(T) - 1;
    static constexpr bool kChecked = true;
    static constexpr u32 kBad = kInfBits<T>;
    static constexpr int kMantissa = sizeof(T) == 4 ? 23 : is_bf16<T> ? 7 : 10;
    static constexpr int kLeast = is_bf16<T> ? -133 : sizeof(T) == 4 ? -149 : -24;  // the least element is 2^kLeast

    static PB_FN u32 of(u32 bits) {
        if (bits - 1u < kBad - 1u) return bits;
        return (bits & ((1u << kBits) - 1u)) > kBad || bits == kBad ? kBad : 0u;
    }
    // Two 16-bit keys at once, if both are finite.
    static PB_FN bool plain(u32 w) {
        return (((w & 0x7fff7fffu) + (0x8000u - kBad) * 0x10001u) & 0x80008000u) == 0;
    }
    static PB_FN u32 of_pair(u32 w) { return w & ~((w >> 15 & 0x10001u) * 0xffffu); }
    static PB_FN float value(u32 key) {
        if constexpr (sizeof(T) == 4) return bits_of<float>(key);
        else return to_f32(T{(u16)key});
    }
    // The distance to the next key's value: a power of two.
    static PB_FN double unit(u32 key) {
        const u32 e = key >> kMantissa;
        return bits_of<double>((u64)(kLeast + (int)(e ? e - 1u : 0u) + 1023) << 52);
    }
};

template <class T, class Keys_, int kBlock_, bool kCluster_> struct RowSlice {
    using Element = T;
    using Keys = Keys_;
    static constexpr int kBlock = kBlock_, kLane = 16 / (int)sizeof(T);
    static constexpr bool kCluster = kCluster_;

    const T* row;
    unsigned char* held;  // of the first `resident` vectors: elements at first, then keys
    words<16>* edges;     // keys of the first and the last vector where they reach beyond the row; lanes outside have key 0
    int n;                // elements of the row
    int column;           // of the first element of vector 0: less than 0 where the row begins within the vector
    int vectors;          // 16 bytes of memory, aligned; they cover the slice
    int resident;

    static PB_FN int rank() { return kCluster ? (int)cluster_rank() : 0; }
    static PB_FN int ranks() { return kCluster ? (int)cluster_size() : 1; }
    // Which row of the grid's this block works on.
    static PB_FN i64 index() { return kCluster ? (i64)cluster_id() : (i64)blockIdx.x; }
    static PB_FN void sync() {
        if constexpr (kCluster) cluster_sync();
        else __syncthreads();
    }

    // A barrier must follow before the first load().
    PB_FN RowSlice(const T* row_, int n_, unsigned char* held_, int capacity) : row(row_), held(held_), n(n_) {
        PB_SHARED_ARRAY(words<16>, space, 2);
        edges = space;
        const int lead = (int)((u64)row & 15u) / (int)sizeof(T);
        const int all = (lead + n + kLane - 1) / kLane;
        const int share = (all + ranks() - 1) / ranks();
        const int first = min_i(all, share * rank());
        vectors = min_i(share, all - first);
        column = first * kLane - lead;
        resident = min_i(vectors, capacity);
        if (threadIdx.x < 2 && (int)threadIdx.x < vectors) {
            const int v = threadIdx.x ? vectors - 1 : 0;
            if (!whole(v)) gather(v);
        }
    }

    static PB_FN u32 lane(const words<16>& w, int j) {
        if constexpr (sizeof(T) == 4) return w.w[j];
        else return j & 1 ? w.w[j / 2] >> 16 : w.w[j / 2] & 0xffffu;
    }
    // The same where j is not known at compile time.
    static PB_FN u32 any_lane(const words<16>& w, int j) {
        const int i = sizeof(T) == 4 ? j : j >> 1;
        const u32 a = i & 1 ? w.w[1] : w.w[0], b = i & 1 ? w.w[3] : w.w[2], x = i & 2 ? b : a;
        if constexpr (sizeof(T) == 4) return x;
        else return j & 1 ? x >> 16 : x & 0xffffu;
    }
    static PB_FN void set_lane(words<16>& w, int j, u32 bits) {
        if constexpr (sizeof(T) == 4) w.w[j] = bits;
        else w.w[j / 2] = j & 1 ? (w.w[j / 2] & 0xffffu) | bits << 16 : (w.w[j / 2] & 0xffff0000u) | bits;
    }
    static PB_FN u64 join(u32 lo, u32 hi) { return (u64)hi << 32 | lo; }
    static PB_FN words<16> split(u64 lo, u64 hi) {
        return {{(u32)lo, (u32)(lo >> 32), (u32)hi, (u32)(hi >> 32)}};
    }
    PB_FN int at(int v) const { return column + v * kLane; }
    PB_FN bool inside(int c) const { return (u32)c < (u32)n; }
    PB_FN bool whole(int v) const { return at(v) >= 0 && at(v) + kLane <= n; }
    PB_FN u32 element(int c) const { return ld<sizeof(T)>(row + c).w[0]; }

    PB_FN void gather(int v) const {
        u64 lo = 0, hi = 0;
#pragma unroll 1
        for (int c = at(v) + kLane - 1; c >= at(v); c--) {
            hi = hi << 8 * sizeof(T) | lo >> (64 - 8 * sizeof(T));
            lo = lo << 8 * sizeof(T) | (inside(c) ? Keys::of(element(c)) : 0u);
        }
        edges[v ? 1 : 0] = split(lo, hi);
    }
    // Brings elements into shared memory. Thread t has vectors t, t + kBlock, ...
    PB_FN void stage() const {
        constexpr int kFlight = 4;
#pragma unroll 1
        for (int v = (int)threadIdx.x; v < resident; v += kFlight * kBlock) {
            words<16> w[kFlight];
#pragma unroll
            for (int i = 0; i < kFlight; i++)
                if (v + i * kBlock < resident && whole(v + i * kBlock)) w[i] = ld_once<16>(row + at(v + i * kBlock));
#pragma unroll
            for (int i = 0; i < kFlight; i++)
                if (v + i * kBlock < resident && whole(v + i * kBlock)) st<16>(held + 16 * (v + i * kBlock), w[i]);
        }
    }
    // The keys of a vector. `fresh`: for the first time after stage(), by the same thread.
    PB_FN words<16> load(int v, bool fresh = false) const {
        if (!whole(v)) return edges[v ? 1 : 0];
        const bool here = v < resident;
        words<16> w = here ? ld<16>(held + 16 * v) : ld_once<16>(row + at(v));
        if (here && !fresh) return w;
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < 4; i++) w.w[i] = Keys::of(w.w[i]);
        } else if (Keys::plain(w.w[0]) && Keys::plain(w.w[1]) && Keys::plain(w.w[2]) && Keys::plain(w.w[3])) {
#pragma unroll
            for (int i = 0; i < 4; i++) w.w[i] = Keys::of_pair(w.w[i]);
        } else {
            u64 lo = join(w.w[0], w.w[1]), hi = join(w.w[2], w.w[3]);
#pragma unroll 1
            for (int j = 0; j < kLane; j++) {
                const u64 key = Keys::of((u32)lo & 0xffffu);
                lo = lo >> 16 | hi << 48;
                hi = hi >> 16 | key << 48;
            }
            w = split(lo, hi);
        }
        if (here) st<16>(held + 16 * v, w);
        return w;
    }
    // The elements of a vector to another row. `alike`: it lies as this one does with respect to vectors.
    PB_FN void store(T* out, int v, const words<16>& w, bool alike) const {
        const int c = at(v);
        if (alike && whole(v)) {
            st_once<16>(out + c, w);
        } else {
#pragma unroll 1
            for (int j = 0; j < kLane; j++)
                if (inside(c + j)) st<sizeof(T)>(out + c + j, words<sizeof(T)>{{any_lane(w, j)}});
        }
    }
    PB_FN bool alike(const T* out) const { return (((u64)out ^ (u64)row) & 15u) == 0; }
};

}  // namespace pb
