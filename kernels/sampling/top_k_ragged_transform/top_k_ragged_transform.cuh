// Where the k greatest scores lie in a ragged array. params.h is the contract.
#pragma once
#include "sampling/collect.cuh"
#include "sampling/top_k_ragged_transform/params.h"

namespace pb {

template <class T, int kBlock, bool kCluster>
PB_FN void top_k_ragged_transform(const pb_top_k_ragged_transform_params& p) {
    using Slice = RowSlice<T, OrderedKeys<T>, kBlock, kCluster>;
    PB_DYN_SMEM(smem);
    const i64 index = Slice::index();
    const int given = p.lengths[index], length = given < 0 ? 0 : min_i(given, p.max_len);
    const u32 offset = (u32)p.offsets[index];
    i32* const out = p.out + index * p.out_stride;
    Slice row((const T*)p.input + index * p.input_stride, length, smem + p.list, p.resident);
    const Ties ties{p.max_len - 1, p.tie_bits, p.late != 0};
    const u64 at = top_cut<kDigitBits<kBlock, false>>(row, ties, (u64*)smem, p.k);
    const Collection<Slice> collect{row, ties};
    const int n = collect(at, [&](int i, u32, int c) { st<4>(out + i, words<4>{{(u32)c + offset}}); });
    if (Slice::rank() != 0) return;
    for (int i = n + (int)threadIdx.x; i < p.k; i += kBlock) st<4>(out + i, words<4>{{~0u}});
}

}  // namespace pb
