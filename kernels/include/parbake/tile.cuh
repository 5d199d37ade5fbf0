// Tiles of rows in shared memory, filled by cp.async and read by ldmatrix without bank conflicts.
#pragma once
#include "parbake/async.cuh"
#include "parbake/mma.cuh"
#include "parbake/vec.cuh"

namespace pb {

// Rows of kBytes at a multiple of 128. The 16-byte chunks of a row are permuted, by exclusive or with the number of the
// row, so that one chunk of eight rows in turn lies in all banks. The permutation stays within the bits below kLine: one
// address serves all chunks of a row that differ in a constant (`step`), and all rows that are a multiple of 8 away.
template <int kBytes_> struct TileOf {
    static constexpr int kBytes = kBytes_, kLine = kBytes % 128 == 0 ? 128 : 64, kChunks = kBytes / 16;
    static_assert(kBytes % 64 == 0, "rows are multiples of 64 bytes");
    // Of a chunk below kLine / 16.
    static PB_FN int at(int row, int chunk) {
        return row * kBytes + ((chunk ^ (kLine == 128 ? row & 7 : row >> 1 & 3)) << 4);
    }
    // Of any chunk.
    static PB_FN int any(int row, int chunk) {
        constexpr int kPer = kLine / 16;
        return at(row, chunk % kPer) + chunk / kPer * kLine;
    }
    // `chunks` further along the row: a constant, and no bit of it is one of the chunk's own.
    static PB_FN Shared step(Shared from, int chunks) {
        constexpr int kPer = kLine / 16;
        return (from ^ (chunks % kPer << 4)) + chunks / kPer * kLine;
    }
};

}  // namespace pb
