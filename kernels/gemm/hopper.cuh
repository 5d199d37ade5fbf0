// Products by Hopper's own means: operands come by the copy engine, groups of four warps multiply them with wgmma, and
// blocks stay for tile after tile. This is what all of these kernels share; each has its own order of tiles.
#pragma once
#include "gemm/finish.cuh"
#include "parbake/barrier.cuh"
#include "parbake/tma.cuh"
#include "parbake/warp.cuh"
#include "parbake/wgmma.cuh"

#if PB_DEVICE || PB_EMULATED
namespace pb {

// A tile has 64 kGroups rows of `left` and kColumns of `right`. kTurned: left is b, and results are written the other way
// round, so that few rows of a cost few columns. kTall: rows of b in memory are along n. kTwo: left has as many rows of a
// second matrix, and rows of right are gathered by the warps that load.
template <class T_, class Out_, int kTile, bool kTall_, bool kTwo_ = false> struct HopperShape {
    using T = T_;
    using Out = Out_;
    static constexpr bool kTwo = kTwo_, kTurned = kTwo || kTile <= 64, kTall = kTall_, kNarrow = sizeof(T) == 1;
    static constexpr int kGroups = 2, kSets = kTwo ? 2 : 1, kColumns = kTile;
    static constexpr int kStages = kTwo ? (kTile == 128 ? 4 : 5) : kTile == 256 ? 4 : 6;
    static constexpr int kRows = 64 * kGroups, kComputing = 128 * kGroups, kThreads = kComputing + 128;
    static constexpr int kDepth = 128 / (int)sizeof(T), kSteps = 4;
    static constexpr int kSetBytes = kRows * 128, kLeftBytes = kSets * kSetBytes, kRightBytes = kColumns * 128;
    static constexpr int kStageBytes = kLeftBytes + kRightBytes;
    static constexpr int kCount = kColumns / 8;  // sums of a thread and a matrix, four by four
    // Rows of a, and of b, that a tile has.
    static constexpr int kOfA = kTurned ? kColumns : kRows, kOfB = kTurned ? kRows : kColumns;
    // Registers of a thread of the warps that load, and of those that compute.
    static constexpr int kFewer = kTwo ? 56 : 40, kMore = kTwo ? 224 : 232;
    // Who says that a stage is full: who asks the copy engine, and each thread that gathers.
    static constexpr int kArrivals = kTwo ? 129 : 1;
    // Whether a tile may be cut along k; the largest are for results that are large enough without.
    static constexpr bool kSplits = kColumns < 256;
    // Results pass through shared memory as f32, a panel of each group, or with kTwo one of both, at a time: rows of a,
    // columns of b (of both matrices), and the distance of rows in bytes, at which neighbours meet no bank twice.
    static constexpr int kPanels = kTwo ? 1 : kGroups, kAtOnce = kTwo ? 16 : 64;
    static constexpr int kPanelRows = kTurned && kColumns < kAtOnce ? kColumns : kAtOnce;
    static constexpr int kPanelColumns = kTwo ? 2 * kRows : kTurned ? 64 : 32;
    static constexpr int kPitch = kPanelColumns * 4 + (kTurned ? 16 : 32), kPanelBytes = kPanelRows * kPitch;
    static constexpr int kShared = 1024 + kStages * kStageBytes + kPanels * kPanelBytes;
    static_assert(!kTall || (!kNarrow && !kTurned), "what is not dense along k is a right operand of 16 bits");
    static_assert(registers_suffice<kThreads, 128, kFewer, kMore>(), "registers");
    static_assert(kShared + 4096 <= 232448, "fits");
};

// The factors of a block of 128 along k: of the thread's two rows of `left`, and of its columns of `right`.
template <class S> struct HopperFactors {
    float left[2], right[S::kTurned ? S::kColumns / 4 : 1];
    PB_FN float of(int, int j, int e) const { return left[e / 2] * right[S::kTurned ? 2 * j + e % 2 : 0]; }
};

// A block's ring of stages, its barriers, and its panels.
template <class S> struct HopperBlock {
    using T = typename S::T;
    using Set = float[S::kCount][4];
    using Sums = float[S::kSets][S::kCount][4];
    using Stages = Ring<S::kStages>;
    const Shared smem, full, empty;
    unsigned char* const panels;

    static PB_FN unsigned char* aligned(unsigned char* smem) { return smem + wgmma_gap(shared(smem)); }
    PB_FN HopperBlock(unsigned char* smem, u64* barriers)
        : smem(shared(aligned(smem))), full(shared(barriers)), empty(shared(barriers + S::kStages)),
          panels(aligned(smem) + S::kStages * S::kStageBytes) {}

    PB_FN Shared stage(u32 at) const { return smem + (int)at * S::kStageBytes; }

    // By one thread, before `mbar_init_fence` and a barrier of the block.
    PB_FN void begin() const {
#pragma unroll 1
        for (int i = 0; i < S::kStages; i++) {
            mbar_init(full + 8 * i, S::kArrivals);
            mbar_init(empty + 8 * i, 4 * S::kGroups);
        }
    }
    PB_FN void wait_empty(const Stages& ring) const { mbar_wait(empty + 8 * (int)ring.at, ring.phase ^ 1); }
    PB_FN void wait_full(const Stages& ring) const {
        mbar_wait(full + 8 * (int)ring.at, ring.phase);
        // What other threads wrote here by cp.async is for wgmma to read.
        if constexpr (S::kTwo) fence_async();
    }
    // The warp has read a stage.
    PB_FN void free(u32 at) const {
        __syncwarp();
        if (lane_id() == 0) mbar_arrive(empty + 8 * (int)at);
    }
    // Both operands of the stage that is being filled, from element k on: rows of `left` and of `right`, of a matrix each.
    PB_FN void load(const Stages& ring, const pb_tensor_map& left, const pb_tensor_map& right, int k, int row, int column,
                    int of_left, int of_right) const {
        const Shared bar = full + 8 * (int)ring.at, to = stage(ring.at);
        wait_empty(ring);
        mbar_arrive_expect(bar, S::kStageBytes);
        tma_load(to, left, bar, k, row, of_left);
        if constexpr (S::kTall) {
#pragma unroll
            for (int c = 0; c < S::kColumns; c += 64)
                tma_load(to + S::kLeftBytes + c * 128, right, bar, column + c, k, of_right);
        } else {
            tma_load(to + S::kLeftBytes, right, bar, k, column, of_right);
        }
    }

    static PB_FN void clear(Sums& sums) {
#pragma unroll
        for (int set = 0; set < S::kSets; set++)
#pragma unroll
            for (int j = 0; j < S::kCount; j++) sums[set][j][0] = sums[set][j][1] = sums[set][j][2] = sums[set][j][3] = 0.f;
    }
    template <bool kAdd> PB_FN void multiply(Set& d, u32 at, int set, int group) const {
        using Multiply = Wgmma<T, S::kColumns, false, S::kTall>;
        const Shared right = stage(at) + S::kLeftBytes;
        const u64 a = wgmma_operand(stage(at) + (set * S::kSetBytes + group * 64 * 128));
        const u64 b = S::kTall ? wgmma_operand_tall(right, 64 * 128) : wgmma_operand(right);
        Multiply::template of<kAdd>(d, a, b);
#pragma unroll
        for (int step = 1; step < S::kSteps; step++)
            Multiply::template of<true>(d, wgmma_step(a, 32 * step), wgmma_step(b, (S::kTall ? 2048 : 32) * step));
    }
    PB_FN void add_16(Sums& sums, int stages, Stages& ring, int group) const {
        u32 last = 0;
#pragma unroll 1
        for (int i = 0; i < stages; i++) {
            wait_full(ring);
            wgmma_fence();
#pragma unroll
            for (int set = 0; set < S::kSets; set++) multiply<true>(sums[set], ring.at, set, group);
            wgmma_commit();
            // The stage before has been read when this one is being multiplied.
            wgmma_wait<1>();
            if (i > 0) free(last);
            last = ring.at;
            ring.next();
        }
        wgmma_wait<0>();
#pragma unroll
        for (int set = 0; set < S::kSets; set++) wgmma_hold(sums[set]);
        if (stages > 0) free(last);
    }
    // Tensor cores keep too few bits of long sums of 8-bit products: those of 128 are added up here, multiplied by
    // `factors(i, at)`.of(set, j, e), which of kTwo are read from shared memory as they are needed.
    template <class Factors> PB_FN void add_8(Sums& sums, int stages, Stages& ring, int group, Factors factors) const {
#pragma unroll 1
        for (int i = 0; i < stages; i++) {
            const auto f = factors(i, ring.at);
            wait_full(ring);
#pragma unroll
            for (int set = 0; set < S::kSets; set++) {
                Set d;
                wgmma_fence();
                multiply<false>(d, ring.at, set, group);
                wgmma_commit();
                wgmma_wait<0>();
                wgmma_hold(d);
                if constexpr (!S::kTwo) free(ring.at);
#pragma unroll
                for (int j = 0; j < S::kCount; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) sums[set][j][e] = fmaf(d[j][e], f.of(set, j, e), sums[set][j][e]);
            }
            if constexpr (S::kTwo) free(ring.at);
            ring.next();
        }
    }

    // Sums pass through panels: `write(panel, c)` has those of columns c and following of `right`.
    template <class Write> PB_FN void pass(const Sums& sums, int group, Write write) const {
        const int thread = (int)threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        unsigned char* const panel = panels + (S::kTwo ? 0 : group * S::kPanelBytes);
        constexpr int kWidth = S::kTurned ? S::kPanelRows : S::kPanelColumns;  // columns that pass at a time
        const int first = (S::kTwo ? 64 * group : 0) + 16 * warp + lane / 4;
        const auto meet = [&] {
            if constexpr (S::kTwo) bar_sync(1, S::kComputing);
            else bar_sync(2 + group, 128);
        };
#pragma unroll 1
        for (int c = 0; c < S::kColumns; c += kWidth) {
            meet();
            // Which sums these are a thread says by a branch, as registers have no index.
#pragma unroll
            for (int part = 0; part < S::kColumns; part += kWidth) {
                if (part != c) continue;
#pragma unroll
                for (int set = 0; set < S::kSets; set++)
#pragma unroll
                    for (int j = 0; j < kWidth / 8; j++)
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            const float(&sum)[4] = sums[set][part / 8 + j];
                            put(panel, set * S::kRows + first + 8 * h, 8 * j + lane % 4 * 2, sum[2 * h], sum[2 * h + 1]);
                        }
            }
            meet();
            write(panel, c);
        }
    }
    // Two sums of row r, side by side.
    static PB_FN void put(unsigned char* panel, int r, int column, float x, float y) {
        if constexpr (S::kTurned) {
            *(float*)(panel + column * S::kPitch + r * 4) = x;
            *(float*)(panel + (column + 1) * S::kPitch + r * 4) = y;
        } else {
            st<8>(panel + r * S::kPitch + column * 4, {{bits_of<u32>(x), bits_of<u32>(y)}});
        }
    }
};

// What the products of one batch or group are multiplied by, and where they go. P has strides of factors, n, out_row,
// activation and wide.
template <class S, class P> struct HopperResults {
    using Out = typename S::Out;
    const P& p;
    const float *a_scale, *b_scale;  // or null
    const Out* bias;                 // or null
    u8* out;
    int end;  // of the rows of a

    // Row `row` of `left` and column `column` of `right` begin the tile.
    PB_FN HopperFactors<S> factors(int block, int row, int column, int group) const {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32;
        HopperFactors<S> f;
        if constexpr (S::kTurned) {
            // 128 rows of b share one, as a tile has.
            f.left[0] = f.left[1] = of_b(row, block);
#pragma unroll
            for (int i = 0; i < S::kColumns / 4; i++) f.right[i] = of_a(column + i / 2 * 8 + lane % 4 * 2 + i % 2, block);
        } else {
            f.right[0] = of_b(column, block);
#pragma unroll
            for (int h = 0; h < 2; h++) f.left[h] = of_a(row + group * 64 + 16 * warp + 8 * h + lane / 4, block);
        }
        return f;
    }
    PB_FN float of_a(int row, int block) const {
        if (!p.a_scale_k) return 1.f;
        const i64 at = (i64)(min_i(row, end - 1) >> p.a_scale_shift) * p.a_scale_row;
        return bits_of<float>(ld_nc<4>(a_scale + at + block * p.a_scale_k).w[0]);
    }
    PB_FN float of_b(int row, int block) const {
        if (!p.b_scale_k) return 1.f;
        return bits_of<float>(ld_nc<4>(b_scale + (i64)(row >> p.b_scale_shift) * p.b_scale_row + block * p.b_scale_k).w[0]);
    }
    // All sums of a tile.
    PB_FN void write(const HopperBlock<S>& block, const typename HopperBlock<S>::Sums& sums, int row, int column,
                     int group) const {
        block.pass(sums, group, [&](const unsigned char* panel, int c) {
            if constexpr (S::kTurned) write(panel, column + c, row + group * 64);
            else write(panel, row + group * 64, column + c);
        });
    }
    // Rows of a and columns of b that a panel has.
    PB_FN void write(const unsigned char* panel, int row, int column) const {
        constexpr int kQuads = S::kPanelColumns / 4;
        const int thread = (int)threadIdx.x % 128, quad = thread % kQuads;
        column += quad * 4;
        if (column >= p.n) return;
        const float* const of_rows = p.a_scale_k ? nullptr : a_scale;
        const Columns<Out> columns(column, p.n, p.b_scale_k ? nullptr : b_scale, p.b_scale_row, p.b_scale_shift, bias);
#pragma unroll 1
        for (int r = thread / kQuads; r < S::kPanelRows && row + r < end; r += 128 / kQuads) {
            float v[4];
            unpack<float, 16>(ld<16>(panel + r * S::kPitch + quad * 16), v);
            const float scale =
                of_rows ? bits_of<float>(ld_nc<4>(of_rows + (i64)((row + r) >> p.a_scale_shift) * p.a_scale_row).w[0]) : 1.f;
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = activate(p.activation, fmaf(v[e], scale * columns.scale[e], columns.bias[e]));
            store_four((Out*)(out + (row + r) * p.out_row) + column, v, column, p.n, p.wide);
        }
    }
};

}  // namespace pb
#endif
