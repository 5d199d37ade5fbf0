// What the collectives share: pools, the meeting of ranks, and sums over them.
//
// Every rank has a pool: for each block the words by which the other ranks say how far they are, for each block of its
// own the number of calls so far, and two halves of data. Block b of a rank has to do with block b of the others only, and
// with region b of the halves: so nothing is shared between the blocks of a launch, and they may run in any order that
// is the same on all ranks.
//
// Halves are taken in turn, so that no meeting is needed at the end of a call. What call n left in its half is written
// over by call n + 2. That begins after call n + 1 has met all ranks, and they had finished call n then: calls on one
// pool are in the order of one stream. A call that meets twice leaves nothing unread in between that it writes over
// itself.
#pragma once
#include "parbake/abi.h"
#include "parbake/math.cuh"
#include "parbake/system.cuh"
#include "parbake/vec.cuh"

namespace pb {

inline constexpr int kMostRanks = 8;

// This rank's part of a launch, for one block.
struct Group {
    const pb_group& g;
    u32 calls;           // of this block before this one
    unsigned char* own;  // the region of this rank
    u64* regions;        // those of all ranks, in shared memory

    // `regions` holds kMostRanks words, and may be read after the first meeting.
    PB_FN Group(const pb_group& group, u64* regions)
        : g(group), calls(ld<4>((const unsigned char*)group.pool + group.calls + 4 * (i64)blockIdx.x).w[0]),
          own((unsigned char*)group.pool + offset()), regions(regions) {}

    PB_FN i64 offset() const { return g.data + (i64)(calls & 1) * g.half + (i64)blockIdx.x * g.region; }

    // Returns when all ranks have come to meeting `phase` of this call, 1 or 2. What they wrote to their pools before can be
    // read then.
    PB_FN void meet(u32 phase) const {
        __syncthreads();
        const int peer = (int)threadIdx.x;
        if (peer < g.ranks && peer != g.rank) {
            const words<8> base = ld_nc<8>((const u64*)g.pools + peer);
            u64* there = (u64*)((u64)base.w[1] << 32 | base.w[0]);
            regions[peer] = (u64)there + (u64)offset();
            const i64 row = (i64)blockIdx.x * kMostRanks;
            const u32 now = 2 * calls + phase;
            st_release_sys(there + row + g.rank, (u64)now << 32 | g.tag);
            wait((const u64*)g.pool + row + peer, now, peer);
        }
        if (peer == g.rank) regions[peer] = (u64)own;
        __syncthreads();
    }

    // The next call begins where this one ends. After the first meeting every thread knows how many there were.
    PB_FN void finish() const {
        if (threadIdx.x == 0) st<4>((unsigned char*)g.pool + g.calls + 4 * (i64)blockIdx.x, words<4>{{calls + 1}});
    }

    // Ranks in an order that begins with this one, so that not all read from one.
    PB_FN int peer(int turn) const { return g.rank + turn < g.ranks ? g.rank + turn : g.rank + turn - g.ranks; }

    // All threads copy `count` units to the own region, from unit `to` on.
    PB_FN void share(const unsigned char* from, int count, i64 to = 0) const { copy(from, own + to * 16, 0, count); }
    // All threads copy units `first` to `end` of the region of a rank; `to` is where unit 0 would go.
    PB_FN void take(int rank, int first, int end, unsigned char* to) const {
        copy((const unsigned char*)regions[rank], to, first, end);
    }
    // A unit of the region of a rank.
    PB_FN words<16> read(int rank, i64 unit) const {
        return ld_once<16>((const void*)(regions[rank] + (u64)unit * 16));
    }
    // Its sum over ranks in f32, in their order: every rank gets the same bits. The loads of kTogether ranks are under way
    // together.
    template <class T, int kTogether = kMostRanks> PB_FN void sum(i64 unit, float (&total)[kLanes<T, 16>]) const {
#pragma unroll
        for (int first = 0; first < kMostRanks; first += kTogether) {
            words<16> v[kTogether];
#pragma unroll
            for (int r = 0; r < kTogether; r++)
                if (first + r < g.ranks) v[r] = read(first + r, unit);
#pragma unroll
            for (int r = 0; r < kTogether; r++) {
                if (first + r >= g.ranks) break;
                float f[kLanes<T, 16>];
                unpack<T, 16>(v[r], f);
#pragma unroll
                for (int j = 0; j < kLanes<T, 16>; j++) total[j] = first + r == 0 ? f[j] : total[j] + f[j];
            }
        }
    }

  private:
    // Several loads of a thread are under way together.
    static PB_FN void copy(const unsigned char* from, unsigned char* to, int first, int end) {
        constexpr int kHeld = 4;
        const int threads = (int)blockDim.x;
        for (int i = first + (int)threadIdx.x; i < end; i += kHeld * threads) {
            words<16> v[kHeld];
#pragma unroll
            for (int j = 0; j < kHeld; j++)
                if (i + j * threads < end) v[j] = ld_once<16>(from + (i64)(i + j * threads) * 16);
#pragma unroll
            for (int j = 0; j < kHeld; j++)
                if (i + j * threads < end) st<16>(to + (i64)(i + j * threads) * 16, v[j]);
        }
    }

    // A rank that is ahead has seen this one's word and its tag.
    PB_FN void wait(const u64* word, u32 now, int peer) const {
        const u64 begin = clock_ns();
        for (;;) {
            const u64 seen = ld_acquire_sys(word);
            const i32 ahead = (i32)((u32)(seen >> 32) - now);
            if (ahead == 0 && (u32)seen != g.tag)
                give_up("rank %d called something else: another op, shape, type or tactic, or a pool of another size",
                        peer);
            if (ahead >= 0) return;
            if (g.patience && clock_ns() - begin > g.patience) give_up("rank %d has not come", peer);
        }
    }
};

// The accesses of a block: `count` from `first` on.
struct Part {
    i64 first;
    int count;
    PB_FN Part(i64 units, i64 per) : first((i64)blockIdx.x * per), count((int)min_i(per, units - first)) {}
};

}  // namespace pb
