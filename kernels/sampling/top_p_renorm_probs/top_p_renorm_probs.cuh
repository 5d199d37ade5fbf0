// The greatest probabilities of each row that make up top_p, over their sum. params.h is the contract.
#pragma once
#include "sampling/renorm.cuh"
#include "sampling/top_p_renorm_probs/params.h"

namespace pb {

template <class T, int kBlock, bool kCluster> PB_FN void top_p_renorm_probs(const pb_top_p_renorm_probs_params& p) {
    using Slice = RowSlice<T, PositiveKeys<T>, kBlock, kCluster>;
    PB_DYN_SMEM(smem);
    const i64 index = Slice::index();
    const float top_p = p.of ? p.of[index] : p.top_p;
    const Slice row((const T*)p.x + index * p.x_stride, p.cols, smem + p.list, p.resident);
    const Ties ties{p.cols - 1, p.tie_bits, false};
    const Cut cut = Selection<Slice, kDigitBits<kBlock, true>, true>{row, ties, (u64*)smem}(
        0u, top_p < 1.f ? (double)top_p : (double)kInf);
    if constexpr (kCluster) cluster_arrive();
    write_renormed(row, ties, cut, (T*)p.out + index * p.out_stride);
    if constexpr (kCluster) cluster_wait();  // others may still be reading this block's sums
}

}  // namespace pb
