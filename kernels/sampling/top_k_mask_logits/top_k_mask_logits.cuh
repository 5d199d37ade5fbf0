// The k greatest logits of each row, the others -inf. params.h is the contract.
#pragma once
#include "sampling/collect.cuh"
#include "sampling/top_k_mask_logits/params.h"

namespace pb {

template <class T, int kBlock, bool kCluster> PB_FN void top_k_mask_logits(const pb_top_k_mask_logits_params& p) {
    using Keys = OrderedKeys<T>;
    using Slice = RowSlice<T, Keys, kBlock, kCluster>;
    PB_DYN_SMEM(smem);
    const i64 index = Slice::index();
    const int given = p.of ? p.of[index] : p.k, k = given < 1 ? 1 : given;
    Slice row((const T*)p.x + index * p.x_stride, p.cols, smem + p.list, p.resident);
    T* const out = (T*)p.out + index * p.out_stride;
    const Ties ties{p.cols - 1, p.tie_bits, false};
    const u64 at = top_cut<kDigitBits<kBlock, false>>(row, ties, (u64*)smem, k);
    if constexpr (kCluster) cluster_arrive();

    const bool alike = row.alike(out);
#pragma unroll 1
    for (int v = (int)threadIdx.x; v < row.vectors; v += kBlock) {
        const words<16> w = row.load(v);
        words<16> r{};
        const u32 kept = ties.kept(row, w, v, at);
        u32 again = 0;  // of zero and of NaN there are several
#pragma unroll
        for (int j = 0; j < Slice::kLane; j++) {
            const u32 key = Slice::lane(w, j);
            Slice::set_lane(r, j, kept >> j & 1 ? Keys::bits(key) : kInfBits<T> | Keys::kSign);
            if (!Keys::unique(key)) again |= 1u << j;
        }
        if (again & kept) {
#pragma unroll
            for (int j = 0; j < Slice::kLane; j++)
                if (again >> j & kept >> j & 1) Slice::set_lane(r, j, row.element(row.at(v) + j));
        }
        row.store(out, v, r, alike);
    }
    if constexpr (kCluster) cluster_wait();  // others may still be reading this block's counts
}

}  // namespace pb
