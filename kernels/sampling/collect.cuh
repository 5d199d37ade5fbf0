// The kept elements of a row in the order of their indices, and the sorting of them.
#pragma once
#include "sampling/select.cuh"

namespace pb {

template <class Slice> struct Collection {
    static constexpr int kBlock = Slice::kBlock, kLane = Slice::kLane;
    const Slice& row;
    const Ties& ties;

    // put(position, key, column) for everything that is kept, in the order of columns; positions are those of the row.
    // Returns how many there are. A barrier of the whole cluster lies within.
    template <class F> PB_FN int operator()(u64 at, F put) const {
        PB_SHARED_ARRAY(u32, slots, 32);
        PB_SHARED_ARRAY(u32, counts, kMaxCluster);
        // A warp has a run of vectors, so that the order of threads is that of columns.
        const int run = (row.vectors + kBlock / 32 - 1) / (kBlock / 32);
        const int begin = min_i(row.vectors, run * (int)warp_id()), end = min_i(row.vectors, begin + run);
        u32 own = 0, base = 0, total = 0;
#pragma unroll 1
        for (int round = 0; round < 2; round++) {
#pragma unroll 1
            for (int v0 = begin; v0 < end; v0 += 32) {
                const int v = v0 + (int)lane_id();
                words<16> w{};
                u32 kept = 0;
                if (v < end) {
                    w = row.load(v);
                    kept = ties.kept(row, w, v, at);
                }
                const u32 n = count_bits(kept);
                own += n;
                if (round == 0 || !warp_ballot(n != 0)) continue;
                const u32 upto = warp_scan(n, add_op{});
                u32 position = base + upto - n;
#pragma unroll 1
                for (; kept; kept &= kept - 1) {
                    const int j = lowest_bit(kept);
                    put((int)position++, Slice::any_lane(w, j), row.at(v) + j);
                }
                base += shfl(upto, 31);
            }
            if (round) break;
            const u32 upto = block_scan(own, add_op{}, 0u, slots, total);
            base = shfl(upto - own, 0);
            if constexpr (Slice::kCluster) {
                const int ranks = Slice::ranks();
                if ((int)threadIdx.x < ranks) cluster_st(counts + Slice::rank(), threadIdx.x, total);
                cluster_sync();
                total = 0;
#pragma unroll 1
                for (int r = 0; r < ranks; r++) {
                    base += r < Slice::rank() ? counts[r] : 0u;
                    total += counts[r];
                }
            }
        }
        return (int)total;
    }
};

// The limit of the k greatest elements; nothing is searched if that is all of them. Afterwards every block of the cluster
// has begun.
template <int kDigit, class Slice> PB_FN u64 top_cut(Slice& row, const Ties& ties, u64* list, int k) {
    if (k < row.n) return Selection<Slice, kDigit, false>{row, ties, list}((u32)k, 0.).at;
    row.resident = 0;
    Slice::sync();
    return ties.everything();
}
// Bits of a digit by which a block of that size counts: as few bins as there are threads, where masses are not summed.
// The blocks of a cluster read each other's bins, which takes longer than one more digit.
template <int kBlock, bool kMass>
inline constexpr int kDigitBits = kMass ? (kBlock < 512 ? 8 : 10) : kBlock < 512 ? 8 : kBlock == 512 ? 9 : 10;

// Sorts n values in shared memory, the greatest first; n is a power of two, 64 or more. A network: who is compared with
// whom depends on n alone.
template <int kBlock> PB_FN void sort_descending(u64* a, int n) {
    __syncthreads();
#pragma unroll 1
    for (int size = 2; size <= n; size *= 2) {
#pragma unroll 1
        for (int stride = size / 2; stride; stride /= 2) {
#pragma unroll 1
            for (int p = (int)threadIdx.x; p < n / 2; p += kBlock) {
                const int i = 2 * p - (p & (stride - 1)), j = i + stride;
                const u64 x = a[i], y = a[j];
                if ((x < y) == ((i & size) == 0)) a[i] = y, a[j] = x;
            }
            // Up to a stride of 32 a warp keeps to its own 64 values.
            const int next = stride > 1 ? stride / 2 : size;
            if (stride <= 32 && next <= 32) __syncwarp();
            else __syncthreads();
        }
    }
}

}  // namespace pb
