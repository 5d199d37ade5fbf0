// Keys and values of a request: from pages in global memory to tiles in shared memory, and from there to the operands
// of mma.sync.
#pragma once
#include "parbake/tile.cuh"
#include "attention/work.cuh"
#include "parbake/fp8.cuh"

namespace pb {

// A tile of kKeys keys and their values, filled by kThreads threads. Where its rows come from stands in shared memory: one
// thread looks a row up, many copy it.
template <class T, int kQk, int kVo, int kKeys, int kThreads> struct KeyTile {
    using K = TileOf<kQk * (int)sizeof(T)>;
    using V = TileOf<kVo * (int)sizeof(T)>;
    static constexpr int kKBytes = kKeys * K::kBytes, kBytes = kKBytes + kKeys * V::kBytes;
    // Threads that share a row: four where they compute for long, so that each has fewer rows.
    static constexpr int kLanes = K::kLine == 128 && V::kLine == 128 && kThreads == 32 ? 8 : 4;
    static constexpr int kRows = kThreads / kLanes, kPasses = kKeys / kRows;
    static_assert(kKeys % kRows == 0 && kThreads % kLanes == 0 && kKeys <= kThreads, "whole passes");
    // Of two tables: addresses of key and value, 16 bytes a row.
    static constexpr int kTable = 16 * kKeys, kTables = 2 * kTable;

    // The row of the first pass. Eight threads in turn write to all banks: those that share no row have rows of which
    // one is permuted to the other half of a line.
    static PB_FN int row(int thread) {
        const int i = thread / kLanes;
        return kLanes == 4 ? (i & ~7) | (i & 1) << 2 | (i >> 1 & 3) : i;
    }
    // Begins to look up the page of a key, if there is such a key: nothing waits for it until `note`.
    template <class P> static PB_FN u32 look_up(const P& p, int key, int kv_len, i64 first_page) {
        const i64 at = first_page + Divisor{p.page_multiply, p.page_shift}.of(key);
        // A plan for other tensors leads to no memory that is not there.
        if (key >= kv_len || at < 0 || (p.kv_indices && at >= p.kv_pages)) return ~0u;
        return ld_nc_or(p.kv_indices, at, (u32)at);
    }
    // Notes where the key lies in its page. The lowest bit says that it does not exist.
    template <class P>
    static PB_FN void note(const P& p, u32 page, int key, const u8* k, const u8* v, unsigned char* to) {
        const bool exists = page < (u64)p.pages;
        if (exists) {
            const u32 entry = (u32)(key - Divisor{p.page_multiply, p.page_shift}.of(key) * p.page_size);
            // Products of 32-bit numbers: one instruction each.
            k += (u64)page * p.k_stride + (u64)entry * p.k_entry_stride;
            v += (u64)page * p.v_stride + (u64)entry * p.v_entry_stride;
        }
        const u64 a = bits_of<u64>(k) | !exists, b = bits_of<u64>(v);
        st<16>(to, {{(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)}});
    }
    // What a thread copies: its rows of a table.
    struct Rows {
        words<16> from[kPasses];
        PB_FN void read(int thread, const unsigned char* table) {
#pragma unroll
            for (int i = 0; i < kPasses; i++) from[i] = ld<16>(table + 16 * (i * kRows + row(thread)));
        }
    };
    // Begins the copies. Keys that do not exist become zeros: what stands in the rest of a page may be NaN, and 0 * NaN is.
    static PB_FN void copy(int thread, const Rows& rows, Shared tile) {
        const int lane = thread % kLanes, first = row(thread);
#pragma unroll
        for (int i = 0; i < kPasses; i++) {
            const int row = i * kRows + first;
            const words<16>& w = rows.from[i];
            const bool exists = (w.w[0] & 1) == 0;
            const u8* from_k = bits_of<const u8*>((u64)w.w[1] << 32 | (w.w[0] & ~1u)) + lane * 16;
            const u8* from_v = bits_of<const u8*>((u64)w.w[3] << 32 | w.w[2]) + lane * 16;
            // Where rows are 8 apart, the permutation is the same.
            const Shared to_k = kRows % 8 == 0 ? tile + K::at(first, lane) + i * kRows * K::kBytes : tile + K::at(row, lane);
            const Shared to_v = (kRows % 8 == 0 ? tile + V::at(first, lane) + i * kRows * V::kBytes : tile + V::at(row, lane)) + kKBytes;
#pragma unroll
            for (int c = 0; c < K::kChunks; c += kLanes) cp_async16(K::step(to_k, c), from_k + c * 16, exists);
#pragma unroll
            for (int c = 0; c < V::kChunks; c += kLanes) cp_async16(V::step(to_v, c), from_v + c * 16, exists);
        }
    }

    static constexpr bool kNarrow = sizeof(T) == 1;
    // Steps of 16 elements, or columns, that one load serves.
    static constexpr int kSteps = kNarrow ? 2 : 1;

    // Where a lane's part of the operands begins in a tile.
    static PB_FN int lane_k(int lane) { return K::at((lane >> 4 << 3) + (lane & 7), lane >> 3 & 1); }
    static PB_FN int lane_v(int lane) { return kKBytes + V::at(lane & 15, lane >> 4); }

    // What is loaded of keys key .. key + 16, from tile + lane_k, for `kSteps` steps of 16 elements each.
    static PB_FN void load_k(u32 (&r)[4], Shared from, int key, int steps) {
        ldmatrix_x4<false>(r, K::step(from, 2 * steps) + key * K::kBytes);
    }
    // The operands of one of these steps. An 8-bit element has its place in memory; QueryOrder says which that is.
    template <class To> static PB_FN void operand_k(u32 (&b)[4], const u32 (&r)[4], int step) {
        if constexpr (kNarrow) {
            widen<T, To>(r[step], b[0], b[1]);
            widen<T, To>(r[2 + step], b[2], b[3]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) b[i] = r[i];
        }
    }
    // What is loaded of values of keys key .. key + 16, from tile + lane_v, for `kSteps` times 16 columns.
    static PB_FN void load_v(u32 (&r)[4], Shared from, int key, int steps) {
        ldmatrix_x4<true>(r, V::step(from, 2 * steps) + key * V::kBytes);
    }
    // The operands of one of these steps: of columns 0 .. 8 and 8 .. 16, or if they are narrow of even columns and of odd
    // ones, since what is loaded together lies side by side.
    template <class To> static PB_FN void operand_v(u32 (&b)[4], const u32 (&r)[4], int step) {
        if constexpr (kNarrow) {
            widen<T, To>(apart(r[2 * step]), b[0], b[2]);
            widen<T, To>(apart(r[2 * step + 1]), b[1], b[3]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) b[i] = r[i];
        }
    }
    // Bytes 0, 2, 1, 3.
    static PB_FN u32 apart(u32 v) { return (v & 0xff0000ffu) | (v & 0xff00u) << 8 | (v >> 8 & 0xff00u); }
    // The column of the first of the two elements of accumulator 8 * j .. 8 * j + 8 that a lane writes together, and these.
    static PB_FN int column(int j, int lane) {
        return kNarrow ? 8 * (j & ~1) + lane % 4 * 4 + (j & 1) * 2 : 8 * j + lane % 4 * 2;
    }
    template <int kOut> static PB_FN void two(float (&x)[2], const float (&o)[kOut][4], int j, int half) {
        x[0] = kNarrow ? o[j & ~1][2 * half + (j & 1)] : o[j][2 * half];
        x[1] = kNarrow ? o[j | 1][2 * half + (j & 1)] : o[j][2 * half + 1];
    }
};

}  // namespace pb
