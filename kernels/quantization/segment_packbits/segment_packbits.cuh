// Eight booleans to a byte, segment by segment. params.h is the contract.
#pragma once
#include "quantization/bits.cuh"
#include "quantization/segment_packbits/params.h"
#include "quantization/segments.cuh"

namespace pb {

// A thread for each byte of out, which finds its segment itself: the last one that begins at or before it.
template <class I> PB_FN void segment_packbits(const pb_segment_packbits_params& p) {
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= p.packed) return;
    const i32* begins = (const i32*)p.out_indptr;
    i64 lo = 0, hi = p.batch + 1;
#pragma unroll 1
    while (lo + 1 < hi) {
        const i64 middle = (lo + hi) / 2;
        if (load_index(begins + middle) <= at) lo = middle;
        else hi = middle;
    }
    u32 bits = 0;
    if (lo < p.batch) {
        const I* indptr = (const I*)p.indptr + lo;
        const i64 first = load_index(indptr) + 8 * (at - load_index(begins + lo));
        const i64 end = load_index(indptr + 1), last = end < p.n ? end : p.n;
        if (first >= 0) bits = bits_of_some((const u8*)p.x + first, last - first, p.little);
    }
    st<1>((u8*)p.out + at, words<1>{{bits}});
}

}  // namespace pb
