// The same products by Hopper's own means. See params.h for the contract.
#pragma once
#include "gemm/bmm/params.h"
#include "gemm/hopper.cuh"

#if PB_DEVICE || PB_EMULATED
namespace pb {

// Rows are those of `left`, columns those of `right`.
template <class S> struct HopperBmmTile {
    int row, column, batch, split, first, stages;
    i64 item;
    // Eight rows of tiles are taken together, so that what neighbours share is in the cache.
    PB_FN HopperBmmTile(const pb_bmm_params& p, u32 n) {
        constexpr u32 kTogether = 8;
        const u32 columns = (u32)(S::kTurned ? p.m_tiles : p.n_tiles), rows = (u32)(S::kTurned ? p.n_tiles : p.m_tiles);
        const u32 tiles = rows * columns, plane = n / tiles, tile = n - plane * tiles;
        split = (int)(plane / (u32)p.batch), batch = (int)(plane - (u32)split * (u32)p.batch);
        const u32 band = tile / (kTogether * columns), within = tile - band * kTogether * columns;
        const u32 left = rows - band * kTogether, height = left < kTogether ? left : kTogether;
        column = (int)(within / height) * S::kColumns;
        row = (int)(band * kTogether + within % height) * S::kRows;
        first = split * p.stages;
        stages = min_i(p.stages, (p.k + S::kDepth - 1) / S::kDepth - first);
        item = (i64)batch * tiles + tile;
    }
    static PB_FN u32 count(const pb_bmm_params& p) {
        return (u32)p.m_tiles * (u32)p.n_tiles * (u32)p.batch * (u32)p.splits;
    }
};

template <class S> struct HopperBmm : HopperBlock<S> {
    using Block = HopperBlock<S>;
    using Tile = HopperBmmTile<S>;
    const pb_bmm_params& p;
    u32* const before;

    PB_FN HopperBmm(const pb_bmm_params& p, unsigned char* smem, u64* barriers, u32* before)
        : Block(smem, barriers), p(p), before(before) {}

    PB_FN void run() const {
        if (threadIdx.x == 0) {
            tma_prefetch(p.a_map);
            tma_prefetch(p.b_map);
            Block::begin();
            mbar_init_fence();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
            registers_fewer<S::kFewer>();
            if (threadIdx.x == 0) load();
        } else {
            registers_more<S::kMore>();
            compute((int)threadIdx.x / 128 - 1);
        }
    }
    PB_FN void load() const {
        typename Block::Stages ring;
        const pb_tensor_map &left = S::kTurned ? p.b_map : p.a_map, &right = S::kTurned ? p.a_map : p.b_map;
#pragma unroll 1
        for (u32 n = blockIdx.x; n < Tile::count(p); n += gridDim.x) {
            const Tile tile(p, n);
#pragma unroll 1
            for (int i = 0; i < tile.stages; i++) {
                Block::load(ring, left, right, (tile.first + i) * S::kDepth, tile.row, tile.column, tile.batch, tile.batch);
                ring.next();
            }
        }
    }
    PB_FN void compute(int group) const {
        typename Block::Stages ring;
#pragma unroll 1
        for (u32 n = blockIdx.x; n < Tile::count(p); n += gridDim.x) {
            const Tile tile(p, n);
            const auto of = [&](const void* scales, i64 step) {
                return scales ? (const float*)scales + tile.batch * step : nullptr;
            };
            const HopperResults<S, pb_bmm_params> results = {
                p, of(p.a_scale, p.a_scale_batch), of(p.b_scale, p.b_scale_batch), (const typename S::Out*)p.bias,
                (u8*)p.out + tile.batch * p.out_batch, p.m};
            typename Block::Sums sums;
            Block::clear(sums);
            if constexpr (S::kNarrow) {
                Block::add_8(sums, tile.stages, ring, group,
                             [&](int i, u32) { return results.factors(tile.first + i, tile.row, tile.column, group); });
            } else {
                Block::add_16(sums, tile.stages, ring, group);
            }
            if (!S::kSplits || p.splits == 1 || gather(sums[0], tile)) results.write(*this, sums, tile.row, tile.column, group);
        }
    }

    // Leaves this piece's sums in memory; true for the block that comes last, with the sums of all in the order of k.
    PB_FN bool gather(typename Block::Set& sums, const Tile& tile) const {
        constexpr int kSize = S::kRows * S::kColumns;
        const int thread = (int)threadIdx.x - 128;
        u32* const tickets = (u32*)p.tickets + tile.item;
        float* const all = (float*)p.partial + tile.item * p.splits * kSize + thread * 4;
        float* const own = all + (i64)tile.split * kSize;
#pragma unroll
        for (int i = 0; i < S::kCount; i++) st<16>(own + i * 4 * S::kComputing, pack<float, 16>(sums[i]));
        bar_sync(1, S::kComputing);
        if (thread == 0) before[0] = ticket(tickets);
        bar_sync(1, S::kComputing);
        const bool last = before[0] == (u32)p.splits - 1;
        if (last) {
            if (thread == 0) st<4>(tickets, {{0}});  // for the next launch
#pragma unroll
            for (int i = 0; i < S::kCount; i++) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.f;
#pragma unroll 1
            for (int piece = 0; piece < p.splits; piece++)
#pragma unroll
                for (int i = 0; i < S::kCount; i++) {
                    const words<16> w = ld<16>(all + (i64)piece * kSize + i * 4 * S::kComputing);
#pragma unroll
                    for (int e = 0; e < 4; e++) sums[i][e] += bits_of<float>(w.w[e]);
                }
        }
        bar_sync(1, S::kComputing);  // `before` is free again
        return last;
    }
};

template <class S> PB_FN void hopper_bmm(const pb_bmm_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(u64, barriers, 2 * S::kStages);
    PB_SHARED_ARRAY(u32, before, 1);
    HopperBmm<S>(p, smem, barriers, before).run();
}

}  // namespace pb
#endif
