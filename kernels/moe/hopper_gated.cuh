// The first half of experts by Hopper's own means: weights come by the copy engine, rows of x one by one. Both products of a
// stage are of the same rows in shared memory.
#pragma once
#include "gemm/hopper_groups.cuh"
#include "moe/gated.cuh"
#include "parbake/async.cuh"

#if PB_DEVICE || PB_EMULATED
namespace pb {

template <class T, int kTile> using HopperGatedShape = HopperShape<T, T, kTile, false, true>;

// What a block shares: tiles on their way, for each of a tile's rows the row of x or -1, and with 8 bits the factors of a
// stage, of these rows, of gate and of up.
template <class S> struct HopperGatedMemory {
    u64 barriers[2 * S::kStages];
    HopperJobs jobs;
    i32 source[2][S::kColumns];
    float factors[S::kNarrow ? S::kStages : 1][S::kColumns + 2];
};

template <class S> struct HopperGatedFactors {
    const float *rows, *sets;
    PB_FN float of(int set, int j, int e) const { return sets[set] * bits_of<float>(ld<8>(rows + 8 * j).w[e % 2]); }
};

// `End` has `bias(expert, set, column)`, and `write(values, row, column)` of four columns of a row; a warp has 128 side by
// side. P has w_map, rows, and what HopperGroups takes.
template <class S, class P, class End> struct HopperGated : HopperGroups<S, P> {
    using T = typename S::T;
    using Block = HopperBlock<S>;
    using Groups = HopperGroups<S, P>;
    using Groups::p;
    HopperGatedMemory<S>& memory;
    const End& end;

    PB_FN HopperGated(const P& p, unsigned char* smem, HopperGatedMemory<S>& memory, const End& end)
        : Groups(p, smem, memory.barriers, &memory.jobs), memory(memory), end(end) {}

    PB_FN int stages() const { return (p.hidden + S::kDepth - 1) / S::kDepth; }

    PB_FN void run() const {
        if (threadIdx.x == 0) {
            tma_prefetch(p.w_map);
            Groups::begin();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
            registers_fewer<S::kFewer>();
            load();
        } else {
            registers_more<S::kMore>();
            compute((int)threadIdx.x / 128 - 1);
        }
    }

    PB_FN void load() const {
        const int thread = (int)threadIdx.x;
        typename Block::Stages ring;
        typename Groups::Turns turn;
        GroupWalk<S::kOfA> walk;
#pragma unroll 1
        for (u32 n = blockIdx.x;; n += gridDim.x) {
            if (thread < 32) {
                HopperJob& place = Groups::find(n, turn, walk);
                if (thread == 0) place.matrix = place.rows.group;
            }
            bar_sync(4, 128);
            const HopperJob job = memory.jobs.jobs[turn.at];
            i32* const source = memory.source[turn.at];
            if (thread < S::kColumns) {
                i32 from = -1;
                if (thread < job.rows.count) from = (i32)ld_nc<4>((const i32*)p.rows + job.rows.first + thread).w[0];
                source[thread] = (u32)from < (u32)p.tokens ? from : -1;
            }
            bar_sync(4, 128);
            if (thread == 0) mbar_arrive(Groups::job_full(turn.at));
            if (job.rows.count <= 0) break;
            turn.next();
            bring(job, source, ring);
        }
        // Copies end before the threads that began them.
        cp_async_commit();
        cp_async_wait<0>();
    }
    // All stages of a tile. Eight threads share a row.
    PB_FN void bring(const HopperJob& job, const i32* source, typename Block::Stages& ring) const {
        constexpr int kPasses = S::kColumns / 16, kLanes = 16 / (int)sizeof(T);
        const int thread = (int)threadIdx.x, lane = thread % 8, row = thread / 8;
        const int to_row = S::kLeftBytes + row * 128 + ((lane ^ row % 8) << 4);
        const u8* from[kPasses];
        u32 there = 0;
#pragma unroll
        for (int i = 0; i < kPasses; i++) {
            const int of = source[row + 16 * i];
            there |= (of < 0 ? 0u : 1u) << i;
            // Nothing is read of a row that does not exist, but the address is one of memory.
            from[i] = (of < 0 ? (const u8*)p.w : (const u8*)p.x + of * p.x_row) + lane * 16;
        }
#pragma unroll 1
        for (int i = 0; i < stages(); i++) {
            const Shared bar = Block::full + 8 * (int)ring.at, to = Block::stage(ring.at);
            const int k = i * S::kDepth;
            Block::wait_empty(ring);
            if (thread == 0) {
                mbar_arrive_expect(bar, S::kLeftBytes);
                tma_load(to, p.w_map, bar, k, job.column, job.matrix);
                tma_load(to + S::kSetBytes, p.w_map, bar, k, p.inner + job.column, job.matrix);
            }
            // What lies behind the end of a row may be NaN, which is no zero times the zeros of the other operand.
            const bool inside = k + lane * kLanes < p.hidden;
#pragma unroll
            for (int pass = 0; pass < kPasses; pass++)
                cp_async16(to + (to_row + pass * 16 * 128), from[pass] + (i64)i * 128, inside && there >> pass & 1);
            if constexpr (S::kNarrow) bring_factors(job, source, i, memory.factors[ring.at]);
            mbar_arrive_copied(bar);
            ring.next();
        }
    }
    PB_FN void bring_factors(const HopperJob& job, const i32* source, int block, float* to) const {
        const int thread = (int)threadIdx.x;
        if (thread < S::kColumns) {
            const int of = source[thread];
            const float* const from = (const float*)p.x_scale + of * p.x_scale_row + block * p.x_scale_k;
            cp_async4(shared(to + thread), of < 0 ? (const float*)p.w_scale : from, of >= 0);
        }
        if (thread < S::kSets) {
            const int row = (job.column + thread * p.inner) / 128;
            const float* const from = (const float*)p.w_scale + job.matrix * p.w_scale_expert + row * p.w_scale_row;
            cp_async4(shared(to + S::kColumns + thread), from + block * p.w_scale_k, true);
        }
    }

    PB_FN void compute(int group) const {
        typename Block::Stages ring;
        typename Groups::Turns turn;
#pragma unroll 1
        while (true) {
            const HopperJob job = Groups::take(turn);
            if (job.rows.count <= 0) return;
            typename Block::Sums sums;
            Block::clear(sums);
            if constexpr (S::kNarrow) {
                Block::add_8(sums, stages(), ring, group, [&](int, u32 at) {
                    const float* const of = memory.factors[at];
                    return HopperGatedFactors<S>{of + lane_id() % 4 * 2, of + S::kColumns};
                });
            } else {
                Block::add_16(sums, stages(), ring, group);
            }
            finish(sums, job, memory.source[turn.at], group);
            Groups::give_back(turn);
        }
    }
    PB_FN void finish(const typename Block::Sums& sums, const HopperJob& job, const i32* source, int group) const {
        const int quad = (int)lane_id() * 4, column = job.column + quad;
        float bias[2][4];
#pragma unroll
        for (int set = 0; set < 2; set++)
#pragma unroll
            for (int e = 0; e < 4; e++) bias[set][e] = end.bias(job.matrix, set, column + e);
        Block::pass(sums, group, [&](const unsigned char* panel, int c) {
#pragma unroll 1
            for (int r = (int)warp_id() - 4; r < S::kPanelRows; r += S::kComputing / 32) {
                if (source[c + r] < 0) continue;
                const unsigned char* const from = panel + r * S::kPitch + quad * 4;
                float g[4], u[4], v[4];
                unpack<float, 16>(ld<16>(from), g);
                unpack<float, 16>(ld<16>(from + S::kRows * 4), u);
#pragma unroll
                for (int e = 0; e < 4; e++) v[e] = gated(p.activation, g[e] + bias[0][e], u[e] + bias[1][e], p.limit);
                end.write(v, job.rows.first + c + r, column);
            }
        });
    }
};

}  // namespace pb
#endif
