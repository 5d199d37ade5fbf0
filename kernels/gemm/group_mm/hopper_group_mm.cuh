// The same products by Hopper's own means, where rows of a group lie side by side in a. See params.h for the contract.
#pragma once
#include "gemm/group_mm/params.h"
#include "gemm/hopper_groups.cuh"

#if PB_DEVICE || PB_EMULATED
namespace pb {

template <class S> struct HopperGroupMm : HopperGroups<S, pb_group_mm_params> {
    using Groups = HopperGroups<S, pb_group_mm_params>;
    using Block = HopperBlock<S>;
    using Groups::Groups;
    using Groups::p;

    PB_FN int stages() const { return (p.k + S::kDepth - 1) / S::kDepth; }
    // The first row of `left`, and of `right`.
    static PB_FN int left(const HopperJob& job) { return S::kTurned ? job.column : job.rows.first; }
    static PB_FN int right(const HopperJob& job) { return S::kTurned ? job.rows.first : job.column; }

    PB_FN void run() const {
        if (threadIdx.x == 0) {
            tma_prefetch(p.a_map);
            tma_prefetch(p.b_map);
            Groups::begin();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
            registers_fewer<S::kFewer>();
            if (threadIdx.x < 32) load();
        } else {
            registers_more<S::kMore>();
            compute((int)threadIdx.x / 128 - 1);
        }
    }

    // One warp finds tiles, one lane of it asks for them. A box may have rows of the next group: their results are not
    // written.
    PB_FN void load() const {
        typename Block::Stages ring;
        typename Groups::Turns turn;
        GroupWalk<S::kOfA> walk;
#pragma unroll 1
        for (u32 n = blockIdx.x;; n += gridDim.x) {
            HopperJob& place = Groups::find(n, turn, walk);
            if (lane_id() == 0) {
                const int group = place.rows.group;
                place.matrix = group >= 0 && p.weights ? (int)ld_nc<4>((const i32*)p.weights + group).w[0] : group;
            }
            __syncwarp();
            const HopperJob job = place;
            const bool over = job.rows.count <= 0;
            if (!over && (u32)job.matrix >= (u32)p.matrices) continue;
            if (lane_id() == 0) mbar_arrive(Groups::job_full(turn.at));
            if (over) return;
            turn.next();
            const int of_a = 0, of_left = S::kTurned ? job.matrix : of_a, of_right = S::kTurned ? of_a : job.matrix;
            if (lane_id() == 0) {
#pragma unroll 1
                for (int i = 0; i < stages(); i++) {
                    Block::load(ring, S::kTurned ? p.b_map : p.a_map, S::kTurned ? p.a_map : p.b_map, i * S::kDepth,
                                left(job), right(job), of_left, of_right);
                    ring.next();
                }
            }
            __syncwarp();
        }
    }

    PB_FN void compute(int group) const {
        typename Block::Stages ring;
        typename Groups::Turns turn;
#pragma unroll 1
        while (true) {
            const HopperJob job = Groups::take(turn);
            if (job.rows.count <= 0) return;
            Groups::give_back(turn);
            const HopperResults<S, pb_group_mm_params> results = {
                p, (const float*)p.a_scale, p.b_scale ? (const float*)p.b_scale + job.matrix * p.b_scale_group : nullptr,
                p.bias ? (const typename S::Out*)p.bias + job.matrix * p.bias_group : nullptr, (u8*)p.out,
                job.rows.first + job.rows.count};
            typename Block::Sums sums;
            Block::clear(sums);
            if constexpr (S::kNarrow) {
                Block::add_8(sums, stages(), ring, group,
                             [&](int i, u32) { return results.factors(i, left(job), right(job), group); });
            } else {
                Block::add_16(sums, stages(), ring, group);
            }
            results.write(*this, sums, left(job), right(job), group);
        }
    }
};

template <class S> PB_FN void hopper_group_mm(const pb_group_mm_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(u64, barriers, 2 * S::kStages);
    PB_SHARED_ARRAY(HopperJobs, jobs, 1);
    HopperGroupMm<S>(p, smem, barriers, jobs).run();
}

}  // namespace pb
#endif
