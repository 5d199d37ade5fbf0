// Grouped products by Hopper's own means: which tiles there are only the device knows. One warp finds them, and hands each
// to those that compute.
#pragma once
#include "gemm/groups.cuh"
#include "gemm/hopper.cuh"

#if PB_DEVICE || PB_EMULATED
namespace pb {

// A tile: its rows of the results, its first column, and the matrix of its group.
struct HopperJob {
    GroupTile rows;
    int column, matrix;
};

// Two tiles in shared memory, one that is computed and one that is being loaded.
struct HopperJobs {
    u64 full[2], empty[2];
    HopperJob jobs[2];
};

// P has n_tiles and what GroupWalk takes.
template <class S, class P> struct HopperGroups : HopperBlock<S> {
    using Block = HopperBlock<S>;
    using Turns = Ring<2>;
    const P& p;
    HopperJobs* const shared_jobs;

    PB_FN HopperGroups(const P& p, unsigned char* smem, u64* barriers, HopperJobs* jobs)
        : Block(smem, barriers), p(p), shared_jobs(jobs) {}

    PB_FN Shared job_full(u32 at) const { return shared(shared_jobs->full + at); }
    PB_FN Shared job_empty(u32 at) const { return shared(shared_jobs->empty + at); }

    // By one thread, before a barrier of the block.
    PB_FN void begin() const {
        Block::begin();
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            mbar_init(job_full(i), 1);
            mbar_init(job_empty(i), 4 * S::kGroups);
        }
        mbar_init_fence();
    }
    // One warp: tile `n`, in a place that nobody reads any more; no rows: there is no such tile. What is known of the
    // matrix is for the caller to say.
    PB_FN HopperJob& find(u32 n, const Turns& turn, GroupWalk<S::kOfA>& walk) const {
        HopperJob& job = shared_jobs->jobs[turn.at];
        mbar_wait(job_empty(turn.at), turn.phase ^ 1);
        const u32 m_tile = n / (u32)p.n_tiles;
        walk.find(p, (int)m_tile, job.rows);
        if (lane_id() == 0) job.column = (int)(n - m_tile * (u32)p.n_tiles) * S::kOfB;
        return job;
    }
    // What computes waits for the next tile.
    PB_FN HopperJob take(const Turns& turn) const {
        mbar_wait(job_full(turn.at), turn.phase);
        return shared_jobs->jobs[turn.at];
    }
    // The warp needs nothing of it any more.
    PB_FN void give_back(Turns& turn) const {
        __syncwarp();
        if (lane_id() == 0) mbar_arrive(job_empty(turn.at));
        turn.next();
    }
};

}  // namespace pb
#endif
