// The k greatest probabilities of each row over their sum. params.h is the contract.
#pragma once
#include "sampling/renorm.cuh"
#include "sampling/top_k_renorm_probs/params.h"

namespace pb {

template <class T, int kBlock, bool kCluster> PB_FN void top_k_renorm_probs(const pb_top_k_renorm_probs_params& p) {
    using Slice = RowSlice<T, PositiveKeys<T>, kBlock, kCluster>;
    PB_DYN_SMEM(smem);
    const i64 index = Slice::index();
    const int given = p.of ? p.of[index] : p.k, k = given < 1 ? 1 : min_i(given, p.cols);
    const Slice row((const T*)p.x + index * p.x_stride, p.cols, smem + p.list, p.resident);
    const Ties ties{p.cols - 1, p.tie_bits, false};
    Cut cut = Selection<Slice, kDigitBits<kBlock, false>, false>{row, ties, (u64*)smem}((u32)k, 0.);
    cut.sum = kept_sum(row, ties, cut.at);
    write_renormed(row, ties, cut, (T*)p.out + index * p.out_stride);
}

}  // namespace pb
