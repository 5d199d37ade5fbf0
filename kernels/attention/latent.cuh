// Keys of multi-head latent attention: a latent of 512 elements, which is the value too, and 64 that carry the
// position. Both lie in one row in shared memory, so each is read from global memory once.
#pragma once
#include "parbake/tile.cuh"
#include "attention/work.cuh"

namespace pb {

struct Latent {
    static constexpr int kNope = 512, kPe = 64, kQk = kNope + kPe;
    using Row = TileOf<kQk * 2>;
    static constexpr int kNopeChunks = kNope / 8;
};

// What one thread copies of a tile of kKeys keys that kThreads threads fill together.
template <int kKeys, int kThreads> struct LatentTile {
    using Row = Latent::Row;
    static constexpr int kBytes = kKeys * Row::kBytes;
    // Threads that share a row.
    static constexpr int kLanes = kThreads / kKeys > 8 ? kThreads / kKeys : 8;
    static constexpr int kRows = kThreads / kLanes, kPasses = kKeys / kRows;
    static_assert(kKeys % kRows == 0 && kThreads % kLanes == 0 && kLanes % 8 == 0 && kLanes <= 64, "whole passes");
    static_assert(kPasses == 1 || kRows % 8 == 0, "rows of a thread have one permutation");

    int page[kPasses];  // of the rows of the next tile

    // Looks up the pages of rows first .. first + kKeys of a request that has keys. Nothing here waits for what is loaded:
    // that is for the next tile.
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
    template <class P> PB_FN void copy(const P& p, int thread, int first, int kv_len, Shared tile) const {
        const Divisor pages{p.page_multiply, p.page_shift};
        const int lane = thread % kLanes, row = thread / kLanes;
        const Shared to = tile + Row::at(row, lane % 8) + lane / 8 * 128;
#pragma unroll
        for (int i = 0; i < kPasses; i++) {
            const int key = first + i * kRows + row;
            const bool exists = key < kv_len && (u32)page[i] < (u32)p.pages;
            const u32 at = exists ? (u32)page[i] : 0u, entry = exists ? (u32)(key - pages.of(key) * p.page_size) : 0u;
            // Products of 32-bit numbers: one instruction each.
            const u8* ckv = (const u8*)p.ckv + lane * 16 + (u64)at * p.ckv_stride + (u64)entry * p.ckv_entry_stride;
            const u8* kpe = (const u8*)p.kpe + lane * 16 + (u64)at * p.kpe_stride + (u64)entry * p.kpe_entry_stride;
            const Shared begin = to + i * kRows * Row::kBytes;
#pragma unroll
            for (int c = 0; c < Latent::kNopeChunks; c += kLanes) cp_async16(begin + c * 16, ckv + c * 16, exists);
            if (kLanes == 8 || lane < 8) cp_async16(begin + Latent::kNope * 2, kpe, exists);
        }
    }

    // Where a lane's part of the operands begins in a tile: of 16 keys and 16 elements, of 8 keys and 32 elements, of
    // 16 keys as values.
    static PB_FN int lane_k16(int lane) { return Row::at((lane >> 4 << 3) + (lane & 7), lane >> 3 & 1); }
    static PB_FN int lane_k8(int lane) { return Row::at(lane & 7, lane >> 3); }
    static PB_FN int lane_v(int lane) { return Row::at(lane & 15, lane >> 4); }
};

}  // namespace pb
