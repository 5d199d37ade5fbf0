// Products by Hopper's own means: operands come by the copy engine, one thread asks for them, groups of four warps multiply
// them with wgmma, and blocks stay for tile after tile.
#pragma once
#include "gemm/finish.cuh"
#include "parbake/barrier.cuh"
#include "parbake/tma.cuh"
#include "parbake/wgmma.cuh"

#if PB_DEVICE
namespace pb {

// A tile has 64 kGroups rows of `left` and kColumns of `right`. kTurned: left is b, and results are written the other way
// round, so that few rows of a cost few columns. kTall: rows of b in memory are along n.
template <class T_, class Out_, int kTile, bool kTall_> struct HopperShape {
    using T = T_;
    using Out = Out_;
    static constexpr bool kTurned = kTile <= 64, kTall = kTall_, kNarrow = sizeof(T) == 1;
    static constexpr int kGroups = 2, kColumns = kTile, kStages = kTile == 256 ? 4 : 6;
    static constexpr int kRows = 64 * kGroups, kComputing = 128 * kGroups, kThreads = kComputing + 128;
    static constexpr int kDepth = 128 / (int)sizeof(T), kSteps = 4;
    static constexpr int kLeftBytes = kRows * 128, kRightBytes = kColumns * 128, kStageBytes = kLeftBytes + kRightBytes;
    static constexpr int kCount = kColumns / 8;  // sums of a thread, four by four
    // Registers of a thread of the warps that load, and of those that compute.
    static constexpr int kFewer = 40, kMore = 232;
    // Whether a tile may be cut along k; the largest are for results that are large enough without.
    static constexpr bool kSplits = kColumns < 256;
    // Results pass through shared memory as f32, a panel of each group at a time: rows of a, columns of b, and the distance
    // of rows in bytes, at which neighbours meet no bank twice.
    static constexpr int kPanelRows = kTurned ? kColumns : 64, kPanelColumns = kTurned ? 64 : 32;
    static constexpr int kPitch = kPanelColumns * 4 + (kTurned ? 16 : 32), kPanelBytes = kPanelRows * kPitch;
    static constexpr int kShared = 1024 + kStages * kStageBytes + kGroups * kPanelBytes;
    static_assert(!kTall || (!kNarrow && !kTurned), "what is not dense along k is a right operand of 16 bits");
    static_assert(registers_suffice<kThreads, 128, kFewer, kMore>(), "registers");
    static_assert(kShared + 16 * kStages + 16 <= 232448, "fits");
};

// What all blocks need to know. Rows are those of `left`, columns those of `right`.
struct HopperWork {
    int row_tiles, column_tiles, batches, splits, stages, depth;  // stages of a piece, and of all
    float* room;                                                  // pieces: f32 [item, split, sums of a tile]
    u32* tickets;
    PB_FN u32 count() const { return (u32)row_tiles * (u32)column_tiles * (u32)batches * (u32)splits; }
};

struct HopperTile {
    int row, column, batch, split, first, stages;
    i64 item;
    // Eight rows of tiles are taken together, so that what neighbours share is in the cache.
    PB_FN HopperTile(const HopperWork& work, u32 n) {
        constexpr u32 kTogether = 8;
        const u32 columns = (u32)work.column_tiles, tiles = (u32)work.row_tiles * columns;
        const u32 plane = n / tiles, tile = n - plane * tiles;
        split = (int)(plane / (u32)work.batches), batch = (int)(plane - (u32)split * (u32)work.batches);
        const u32 band = tile / (kTogether * columns), within = tile - band * kTogether * columns;
        const u32 left = (u32)work.row_tiles - band * kTogether, height = left < kTogether ? left : kTogether;
        column = (int)(within / height);
        row = (int)(band * kTogether + within % height);
        first = split * work.stages;
        stages = min_i(work.stages, work.depth - first);
        item = (i64)batch * tiles + tile;
    }
};

// `End` has `factors(block, ...)`, for 8-bit operands whose factors change along k, and `write`, which makes results of a
// panel of sums.
template <class S, class End> struct Hopper {
    using T = typename S::T;
    using Sums = float[S::kCount][4];
    const HopperWork& work;
    const pb_tensor_map &left, &right;
    const End& end;
    const Shared smem, full, empty;
    unsigned char* const panels;
    u32* const before;

    static PB_FN unsigned char* aligned(unsigned char* smem) { return smem + (-(int)shared(smem).at & 1023); }
    PB_FN Hopper(const HopperWork& work, const pb_tensor_map& left, const pb_tensor_map& right, const End& end,
                 unsigned char* smem, u64* barriers, u32* before)
        : work(work), left(left), right(right), end(end), smem(shared(aligned(smem))), full(shared(barriers)),
          empty(shared(barriers + S::kStages)), panels(aligned(smem) + S::kStages * S::kStageBytes), before(before) {}

    PB_FN Shared stage(u32 at) const { return smem + (int)at * S::kStageBytes; }

    PB_FN void run() const {
        if (threadIdx.x == 0) {
            tma_prefetch(left);
            tma_prefetch(right);
#pragma unroll 1
            for (int i = 0; i < S::kStages; i++) {
                mbar_init(full + 8 * i, 1);
                mbar_init(empty + 8 * i, S::kGroups);
            }
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
        Ring<S::kStages> ring;
#pragma unroll 1
        for (u32 n = blockIdx.x; n < work.count(); n += gridDim.x) {
            const HopperTile tile(work, n);
            const int row = tile.row * S::kRows, column = tile.column * S::kColumns;
#pragma unroll 1
            for (int i = 0; i < tile.stages; i++) {
                const Shared bar = full + 8 * (int)ring.at, to = stage(ring.at);
                const int k = (tile.first + i) * S::kDepth;
                mbar_wait(empty + 8 * (int)ring.at, ring.phase ^ 1);
                mbar_arrive_expect(bar, S::kStageBytes);
                tma_load(to, left, bar, k, row, tile.batch);
                if constexpr (S::kTall) {
#pragma unroll
                    for (int c = 0; c < S::kColumns; c += 64)
                        tma_load(to + S::kLeftBytes + c * 128, right, bar, column + c, k, tile.batch);
                } else {
                    tma_load(to + S::kLeftBytes, right, bar, k, column, tile.batch);
                }
                ring.next();
            }
        }
    }

    template <bool kAdd> static PB_FN void multiply(Sums& d, Shared at, int group) {
        using Multiply = Wgmma<T, S::kColumns, false, S::kTall>;
        const u64 a = wgmma_operand(at + group * 64 * 128);
        const u64 b = S::kTall ? wgmma_operand_tall(at + S::kLeftBytes, 64 * 128) : wgmma_operand(at + S::kLeftBytes);
        Multiply::template of<kAdd>(d, a, b);
#pragma unroll
        for (int step = 1; step < S::kSteps; step++)
            Multiply::template of<true>(d, wgmma_step(a, 32 * step), wgmma_step(b, (S::kTall ? 2048 : 32) * step));
        wgmma_commit();
    }

    PB_FN void compute(int group) const {
        Ring<S::kStages> ring;
#pragma unroll 1
        for (u32 n = blockIdx.x; n < work.count(); n += gridDim.x) {
            const HopperTile tile(work, n);
            Sums sums;
#pragma unroll
            for (int i = 0; i < S::kCount; i++) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.f;
            if constexpr (S::kNarrow) add_8(sums, tile, ring, group);
            else add_16(sums, tile, ring, group);
            if (!S::kSplits || work.splits == 1 || gather(sums, tile)) write(sums, tile, group);
        }
    }
    // The group has read a stage.
    PB_FN void free(u32 at) const {
        if (threadIdx.x % 128 == 0) mbar_arrive(empty + 8 * (int)at);
    }
    PB_FN void add_16(Sums& sums, const HopperTile& tile, Ring<S::kStages>& ring, int group) const {
        u32 last = 0;
#pragma unroll 1
        for (int i = 0; i < tile.stages; i++) {
            mbar_wait(full + 8 * (int)ring.at, ring.phase);
            wgmma_fence();
            multiply<true>(sums, stage(ring.at), group);
            // The stage before has been read when this one is being multiplied.
            wgmma_wait<1>();
            if (i > 0) free(last);
            last = ring.at;
            ring.next();
        }
        wgmma_wait<0>();
        wgmma_hold(sums);
        if (tile.stages > 0) free(last);
    }
    // Tensor cores keep too few bits of long sums of 8-bit products: those of 128 are added up here, and multiplied by their
    // factors, if these change along k.
    PB_FN void add_8(Sums& sums, const HopperTile& tile, Ring<S::kStages>& ring, int group) const {
#pragma unroll 1
        for (int i = 0; i < tile.stages; i++) {
            Sums d;
            float left_factors[2], right_factors[S::kTurned ? S::kColumns / 4 : 1];
            end.template factors<S>(tile, tile.first + i, group, left_factors, right_factors);
            mbar_wait(full + 8 * (int)ring.at, ring.phase);
            wgmma_fence();
            multiply<false>(d, stage(ring.at), group);
            wgmma_wait<0>();
            wgmma_hold(d);
            free(ring.at);
#pragma unroll
            for (int j = 0; j < S::kCount; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sums[j][e] = fmaf(d[j][e], left_factors[e / 2] * right_factors[S::kTurned ? 2 * j + e % 2 : 0], sums[j][e]);
            ring.next();
        }
    }

    // Leaves this piece's sums in memory; true for the block that comes last, with the sums of all in the order of k.
    PB_FN bool gather(Sums& sums, const HopperTile& tile) const {
        constexpr int kSize = S::kRows * S::kColumns;
        const int thread = (int)threadIdx.x - 128;
        float* const all = work.room + tile.item * work.splits * kSize + thread * 4;
        float* const own = all + (i64)tile.split * kSize;
#pragma unroll
        for (int i = 0; i < S::kCount; i++) st<16>(own + i * 4 * S::kComputing, pack<float, 16>(sums[i]));
        bar_sync(1, S::kComputing);
        if (thread == 0) before[0] = ticket(work.tickets + tile.item);
        bar_sync(1, S::kComputing);
        const bool last = before[0] == (u32)work.splits - 1;
        if (last) {
            if (thread == 0) st<4>(work.tickets + tile.item, {{0}});  // for the next launch
#pragma unroll
            for (int i = 0; i < S::kCount; i++) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.f;
#pragma unroll 1
            for (int piece = 0; piece < work.splits; piece++)
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

    PB_FN void write(const Sums& sums, const HopperTile& tile, int group) const {
        const int thread = (int)threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        unsigned char* const panel = panels + group * S::kPanelBytes;
        const int row = tile.row * S::kRows + group * 64, column = tile.column * S::kColumns;
        constexpr int kWidth = S::kTurned ? S::kColumns : S::kPanelColumns;  // columns of `right` that pass at a time
#pragma unroll
        for (int c = 0; c < S::kColumns; c += kWidth) {
            bar_sync(2 + group, 128);
#pragma unroll
            for (int j = 0; j < kWidth / 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int r = 16 * warp + 8 * h + lane / 4, at = 8 * j + lane % 4 * 2;
                    const float x = sums[c / 8 + j][2 * h], y = sums[c / 8 + j][2 * h + 1];
                    if constexpr (S::kTurned) {
                        *(float*)(panel + at * S::kPitch + r * 4) = x;
                        *(float*)(panel + (at + 1) * S::kPitch + r * 4) = y;
                    } else {
                        st<8>(panel + r * S::kPitch + at * 4, {{bits_of<u32>(x), bits_of<u32>(y)}});
                    }
                }
            bar_sync(2 + group, 128);
            if constexpr (S::kTurned) end.template write<S>(panel, tile.batch, column + c, row, thread);
            else end.template write<S>(panel, tile.batch, row, column + c, thread);
        }
    }
};

}  // namespace pb
#endif
