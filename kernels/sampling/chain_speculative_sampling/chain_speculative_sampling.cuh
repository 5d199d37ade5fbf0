// Verifies chains of draft tokens. params.h is the contract.
#pragma once
#include "parbake/philox.cuh"
#include "sampling/row.cuh"
#include "sampling/chain_speculative_sampling/params.h"

namespace pb {

template <int kBlocks, int kVec> PB_FN void chain_speculative_sampling(const pb_chain_speculative_sampling_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(float, tops, kBlocks * kMaxWarps);
    const i64 row = (i64)(blockIdx.x / kBlocks);
    const u64 seed = (u64)(p.seeds ? ((const i64*)p.seeds)[row * p.seeds_step] : p.seed);
    const u64 offset = (u64)(p.offsets ? ((const i64*)p.offsets)[row * p.offsets_step] : p.offset);
    const float* draft = (const float*)p.draft_probs + row * p.draft_row;
    const float* target = (const float*)p.target_probs + row * p.target_row;
    const i32* ids = (const i32*)p.draft_token_ids + row * p.ids_row;

    // Every warp judges the whole chain: that is cheaper than telling the others.
    u32 accepted = 0, first = (u32)p.drafts;
#pragma unroll 1
    for (int i = (int)lane_id(); i < p.drafts; i += 32) {
        const i32 id = ids[i];
        bool good = id >= 0 && id < p.vocab;
        if (good) {
            const double u = uniform_f64(philox(seed, offset, (u32)row, (u32)i).w[0]);
            good = u * (double)draft[i * p.draft_position + id] < (double)target[i * p.target_position + id];
        }
        accepted += good ? 1u : 0u;
        if (!good && (u32)i < first) first = (u32)i;
    }
    accepted = warp_reduce(accepted, add_op{});
    first = warp_reduce(first, min_op{});

    const float* less = (int)first < p.drafts ? draft + (i64)first * p.draft_position : nullptr;
    using Target = Row<kDifference, false, kBlocks, kVec>;
    Target r(target + (i64)first * p.target_position, less, p.vocab, smem, tops);
    r.load();
    double own, total = r.sums(false, own).mass;
    if (total <= 0. && less) {
        r.sync();  // everybody has read the sums
        r.less = nullptr;
        r.load();
        total = r.sums(false, own).mass;
    }
    if (warp_id() != 0) return;

    i32* tokens = (i32*)p.tokens + row * p.tokens_row;
    if (Target::rank() == 0) {
#pragma unroll 1
        for (int i = (int)lane_id(); i <= p.drafts; i += 32)
            if (i != (int)first) tokens[i] = i < (int)first ? ids[i] : -1;
        if (lane_id() == 0) {
            ((i32*)p.accepted)[row] += (i32)accepted;
            ((i32*)p.emitted)[row] += (i32)first;
        }
    }
    if (!(total > 0. && total < (double)kInf)) {
        if (Target::rank() == 0 && lane_id() == 0) tokens[first] = 0;
        return;
    }
    double rest;
    const int s = r.segment_at(uniform_f64(philox(seed, offset, (u32)row, (u32)p.drafts).w[0]), own, rest);
    if (!r.owns(s)) return;
    const u64 found = r.token_at(s, rest, kLastKey);
    if (lane_id() == 0) tokens[first] = (i32)key_index(found);
}

}  // namespace pb
