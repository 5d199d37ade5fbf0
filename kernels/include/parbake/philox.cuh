// Philox4x32-10, a counter-based generator of random numbers (Salmon, Moraes, Dror, Shaw, SC 2011): a keyed bijection
// of 128-bit counters, so that any draw is computed on its own, on any thread, in any order.
//
// Every op that draws counts alike: the key is the seed, the counter is (offset low, offset high, row, draw). Calls with
// the same seed and offset draw the same numbers; different offsets share none.
#pragma once
#include "parbake/types.cuh"

namespace pb {

struct philox_words {
    u32 w[4];
};

PB_FN philox_words philox(u64 seed, u64 offset, u32 row, u32 draw) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    u32 c0 = (u32)offset, c1 = (u32)(offset >> 32), c2 = row, c3 = draw;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 a = (u64)0xd2511f53u * c0, b = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(b >> 32) ^ c1 ^ k0;
        c2 = (u32)(a >> 32) ^ c3 ^ k1;
        c1 = (u32)b;
        c3 = (u32)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return {{c0, c1, c2, c3}};
}

// Uniform in the open interval (0, 1), with all 32 bits: the middle of the word's share of the interval.
PB_FN double uniform_f64(u32 w) {
    return ((double)w + 0.5) * 0x1p-32;
}
// The same with 23 bits: f32 could not hold more without rounding to 1.
PB_FN float uniform_f32(u32 w) {
    return ((float)(w >> 9) + 0.5f) * 0x1p-23f;
}

}  // namespace pb
