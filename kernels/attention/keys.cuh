// Keys and values of a request: from pages in global memory to tiles in shared memory, and from there to the operands
// of mma.sync.
#pragma once
#include "attention/tile.cuh"
#include "attention/work.cuh"
#include "parbake/fp8.cuh"

namespace pb {

// What one thread copies of a tile of kKeys keys that kThreads threads fill together.
template <class T, int kQk, int kVo, int kKeys, int kThreads> struct KeyTile {
    using K = TileOf<kQk * (int)sizeof(T)>;
    using V = TileOf<kVo * (int)sizeof(T)>;
    static constexpr int kKBytes = kKeys * K::kBytes, kBytes = kKBytes + kKeys * V::kBytes;
    // Threads that share a row.
    static constexpr int kLanes = K::kLine == 128 && V::kLine == 128 ? 8 : 4;
    static constexpr int kRows = kThreads / kLanes, kPasses = kKeys / kRows;
    static_assert(kKeys % kRows == 0 && kThreads % kLanes == 0, "whole passes");
    static_assert(kPasses == 1 || kRows % 8 == 0 || kRows == 4, "rows of a thread");

    int page[kPasses];  // of the rows of the next tile

    // Looks up the pages of rows first .. first + kKeys, of which at least one has a key. Nothing here waits for what is
    // loaded: that is for the next tile.
    template <class P> PB_FN void look_up(const P& p, int thread, int first, int kv_len, i64 first_page) {
        const Divisor pages{p.page_multiply, p.page_shift};
#pragma unroll
        for (int i = 0; i < kPasses; i++) {
            const i64 at = first_page + pages.of(min_i(first + i * kRows + thread / kLanes, kv_len - 1));
            page[i] = p.kv_indices ? (int)ld_nc<4>((const i32*)p.kv_indices + at).w[0] : (int)at;
        }
    }
    // Begins the copies of the rows that were looked up. Keys that do not exist become zeros: what stands in the rest of
    // a page may be NaN, and 0 * NaN is.
    template <class P>
    PB_FN void copy(const P& p, int thread, int first, int kv_len, const u8* k, const u8* v, Shared tile) const {
        const Divisor pages{p.page_multiply, p.page_shift};
        const int lane = thread % kLanes, row = thread / kLanes;
        k += lane * 16;
        v += lane * 16;
#pragma unroll
        for (int i = 0; i < kPasses; i++) {
            const int key = first + i * kRows + row;
            const bool exists = key < kv_len && (u32)page[i] < (u32)p.pages;
            const u32 at = exists ? (u32)page[i] : 0u, entry = exists ? (u32)(key - pages.of(key) * p.page_size) : 0u;
            // Products of 32-bit numbers: one instruction each.
            const u8* from_k = k + (u64)at * p.k_stride + (u64)entry * p.k_entry_stride;
            const u8* from_v = v + (u64)at * p.v_stride + (u64)entry * p.v_entry_stride;
            // Where rows are 8 apart, the permutation is the same.
            const Shared to_k = kRows % 8 == 0 ? tile + K::at(row, lane) + i * kRows * K::kBytes : tile + K::at(i * kRows + row, lane);
            const Shared to_v = (kRows % 8 == 0 ? tile + V::at(row, lane) + i * kRows * V::kBytes : tile + V::at(i * kRows + row, lane)) + kKBytes;
#pragma unroll
            for (int c = 0; c < K::kChunks; c += kLanes) cp_async16(K::step(to_k, c), from_k + c * 16, exists);
#pragma unroll
            for (int c = 0; c < V::kChunks; c += kLanes) cp_async16(V::step(to_v, c), from_v + c * 16, exists);
        }
    }

    // Where a lane's part of the operands begins in a tile.
    static PB_FN int lane_k(int lane) { return K::at((lane >> 4 << 3) + (lane & 7), lane >> 3 & 1); }
    static PB_FN int lane_v(int lane) { return kKBytes + V::at(lane & 15, lane >> 4); }
    // Operands of 16-bit keys, from tile + lane_k: of keys key .. key + 16, for 16 elements from 16 * step.
    static PB_FN void k(u32 (&b)[4], Shared from, int key, int step) {
        ldmatrix_x4<false>(b, K::step(from, 2 * step) + key * K::kBytes);
    }
    // Of 16-bit values, from tile + lane_v: of keys key .. key + 16, for columns 16 * step .. 16 * step + 16.
    static PB_FN void v(u32 (&b)[4], Shared from, int key, int step) {
        ldmatrix_x4<true>(b, V::step(from, 2 * step) + key * V::kBytes);
    }
};

}  // namespace pb
