// Eight booleans to a byte. params.h is the contract.
#pragma once
#include "quantization/bits.cuh"
#include "quantization/packbits/params.h"

namespace pb {

// kVec == 16: x is aligned to 16 bytes, out to 4; a thread makes four bytes. kVec == 1: one, from anywhere.
template <int kVec> PB_FN void packbits(const pb_packbits_params& p) {
    const u8* x = (const u8*)p.x;
    u8* out = (u8*)p.out;
    const i64 thread = (i64)blockIdx.x * 256 + threadIdx.x;
    if constexpr (kVec == 16) {
        const i64 i = 32 * thread;
        if (i + 32 <= p.n) {
            const words<16> a = ld_once<16>(x + i), b = ld_once<16>(x + i + 16);
            st<4>(out + i / 8, words<4>{{bits_of_bytes(a.w[0], a.w[1], p.little) |
                                         bits_of_bytes(a.w[2], a.w[3], p.little) << 8 |
                                         bits_of_bytes(b.w[0], b.w[1], p.little) << 16 |
                                         bits_of_bytes(b.w[2], b.w[3], p.little) << 24}});
        } else {
#pragma unroll 1
            for (i64 j = i; j < p.n; j += 8) st<1>(out + j / 8, words<1>{{bits_of_some(x + j, p.n - j, p.little)}});
        }
    } else {
        const i64 i = 8 * thread;
        if (i < p.n) st<1>(out + thread, words<1>{{bits_of_some(x + i, p.n - i, p.little)}});
    }
}

}  // namespace pb
