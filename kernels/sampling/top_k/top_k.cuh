// The k greatest elements of each row. params.h is the contract.
#pragma once
#include "sampling/collect.cuh"
#include "sampling/top_k/params.h"

namespace pb {

template <class T, int kBlock, bool kCluster> PB_FN void top_k(const pb_top_k_params& p) {
    using Keys = OrderedKeys<T>;
    using Slice = RowSlice<T, Keys, kBlock, kCluster>;
    PB_DYN_SMEM(smem);
    u64* const list = (u64*)smem;
    const i64 index = Slice::index();
    T* const values = (T*)p.values + index * p.values_stride;
    i64* const indices = p.indices + index * p.indices_stride;
    Slice row((const T*)p.input + index * p.input_stride, p.cols, smem + p.list, p.resident);
    const Ties ties{p.cols - 1, p.tie_bits, p.late != 0};

    auto put = [&](int i, u32 key, int c) {
        const u32 bits = Keys::unique(key) ? Keys::bits(key) : row.element(c);
        st<sizeof(T)>(values + i, words<sizeof(T)>{{bits}});
        st<8>(indices + i, words<8>{{(u32)c, c < 0 ? ~0u : 0u}});
    };
    const u64 at = top_cut<kDigitBits<kBlock, false>>(row, ties, list, p.k);
    const int n = Collection<Slice>{row, ties}(at, [&](int i, u32 key, int c) {
        if (!p.sorted) return put(i, key, c);
        const u64 joined = ties.join(key, c);
        if constexpr (kCluster) cluster_st(list + i, 0u, joined);  // the first block sorts
        else list[i] = joined;
    });
    if (p.sorted) {
        Slice::sync();
        if (Slice::rank() != 0) return;
        for (int i = n + (int)threadIdx.x; i < p.sorted; i += kBlock) list[i] = 0;
        sort_descending<kBlock>(list, p.sorted);
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < n; i += kBlock) put(i, ties.key(list[i]), ties.column(ties.tie(list[i])));
    }
    if (Slice::rank() != 0) return;
    for (int i = p.cols + (int)threadIdx.x; i < p.k; i += kBlock) {
        st<sizeof(T)>(values + i, words<sizeof(T)>{{kInfBits<T> | Keys::kSign}});
        st<8>(indices + i, words<8>{{~0u, ~0u}});
    }
}

}  // namespace pb
