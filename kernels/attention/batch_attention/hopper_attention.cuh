// Attention by Hopper's own means: one group of four warps brings keys and values, two multiply tiles of 64 rows with wgmma,
// each with its softmax under the products of the other. params.h is the contract; the plan is the same.
#pragma once
#include "attention/batch_attention/params.h"
#include "attention/keys.cuh"
#include "attention/rows.cuh"
#include "attention/softmax.cuh"
#include "parbake/barrier.cuh"
#include "parbake/tma.cuh"
#include "parbake/wgmma.cuh"

#if PB_DEVICE || PB_EMULATED
namespace pb {

template <> inline constexpr bool kHasSinks<pb_batch_attention_params> = true;

// The computing threads of a block.
struct HopperTeam {
    static constexpr int kThreads = 256;
    static PB_FN int thread() { return (int)threadIdx.x - 128; }
    static PB_FN void sync() { bar_sync(1, kThreads); }
};

// Keys and values of kDim elements of a 16-bit type; tiles of 128 rows of queries.
template <class T_, int kDim_> struct HopperTile {
    using T = T_;
    static constexpr int kDim = kDim_, kRows = 128, kThreads = 384, kStages = 2;
    static constexpr int kWarps = 8;                    // that compute
    static constexpr int kKeys = 128;                   // of a stage
    static constexpr int kPlan = kDim > 64 ? 64 : 128;  // of a tile of the plan
    // Panels of 64 elements: rows of 128 bytes.
    static constexpr int kPanels = kDim / 64, kKeyPanel = kKeys * 128, kRowPanel = 64 * 128;
    static constexpr int kQueryBytes = kRows * kDim * 2, kKeyBytes = kKeys * kDim * 2;
    static constexpr int kTables = 3, kTable = 16 * kKeys;
    static constexpr int kShared = 1024 + kQueryBytes + 2 * kStages * kKeyBytes + kTables * kTable;
    static constexpr int kFewer = 48, kMore = 224;  // registers of a thread that loads, and of one that computes
    static_assert(registers_suffice<kThreads, 128, kFewer, kMore>(), "registers");
};

struct HopperJob {
    Piece piece;
    int more;
    const u8 *k, *v;  // of the head of keys
};

template <class S> struct HopperAttention {
    using T = typename S::T;
    using P = pb_batch_attention_params;
    using Keys = KeyTile<T, S::kDim, S::kDim, S::kKeys, 128>;
    using Results = Rows<P, T, S::kRows, S::kDim, HopperTeam::kThreads, HopperTeam>;
    static constexpr int kColumns = S::kKeys / 8, kOut = S::kDim / 8;
    struct Barriers {
        u64 job_full[2], job_empty[2], k_full[S::kStages], k_empty[S::kStages], v_full[S::kStages], v_empty[S::kStages];
    };

    const P& p;
    HopperJob* const jobs;
    Walk* const walk;
    Barriers* const barriers;
    u32* const before;
    unsigned char *const queries, *const tables;
    const Shared keys, values;

    static PB_FN unsigned char* aligned(unsigned char* smem) { return smem + wgmma_gap(shared(smem)); }
    PB_FN HopperAttention(const P& p, HopperJob* jobs, Walk* walk, Barriers* barriers, u32* before, unsigned char* smem)
        : p(p), jobs(jobs), walk(walk), barriers(barriers), before(before), queries(aligned(smem)),
          tables(queries + S::kQueryBytes + 2 * S::kStages * S::kKeyBytes), keys(shared(queries) + S::kQueryBytes),
          values(keys + S::kStages * S::kKeyBytes) {}

    static PB_FN Shared of(u64* barriers, u32 at) { return shared(barriers + at); }
    PB_FN Divisor groups() const { return {p.group_multiply, p.group_shift}; }
    // Stages of a piece, the first key and the end of the keys.
    static PB_FN int first_key(const Piece& piece) { return piece.first * S::kPlan; }
    static PB_FN int end_key(const Piece& piece) { return min_i(piece.end * S::kPlan, piece.kv_len); }
    static PB_FN int stages(const Piece& piece) {
        const int n = end_key(piece) - first_key(piece);
        return n > 0 ? (n + S::kKeys - 1) / S::kKeys : 0;
    }

    PB_FN void run() const {
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                mbar_init(of(barriers->job_full, i), 1);
                mbar_init(of(barriers->job_empty, i), 2);
            }
#pragma unroll
            for (int i = 0; i < S::kStages; i++) {
                mbar_init(of(barriers->k_full, i), 128);
                mbar_init(of(barriers->k_empty, i), S::kWarps);
                mbar_init(of(barriers->v_full, i), 128);
                mbar_init(of(barriers->v_empty, i), S::kWarps);
            }
            mbar_init_fence();
            walk->begin((const i32*)p.plan);
        }
        __syncthreads();
        if (threadIdx.x < 128) {
            registers_fewer<S::kFewer>();
            Loader(*this).run();
        } else {
            registers_more<S::kMore>();
            compute((int)threadIdx.x / 128 - 1);
        }
    }

    // The warps that bring keys. A copy is told of when the next one is under way, so that two always are.
    struct Loader {
        const HopperAttention& of_block;
        const int thread = (int)threadIdx.x;
        Ring<S::kStages> k_ring, v_ring;
        Shared told;
        bool untold = false;

        PB_FN explicit Loader(const HopperAttention& of_block) : of_block(of_block), told(of_block.keys) {}

        PB_FN void run() {
            const HopperAttention& b = of_block;
            Ring<2> ring;
            while (true) {
                const Shared empty = of(b.barriers->job_empty, ring.at);
                // Who still computes may wait for the last copy.
                if (!mbar_test(empty, ring.phase ^ 1)) {
                    tell<0>();
                    mbar_wait(empty, ring.phase ^ 1);
                }
                HopperJob& job = b.jobs[ring.at];
                if (thread == 0) {
                    job.more = b.walk->next(b.p, job.piece);
                    job.k = (const u8*)b.p.k + job.piece.head * b.p.k_head_stride;
                    job.v = (const u8*)b.p.v + job.piece.head * b.p.v_head_stride;
                }
                bar_sync(3, 128);
                if (thread == 0) mbar_arrive(of(b.barriers->job_full, ring.at));
                if (!job.more) break;
                const int count = stages(job.piece);
#pragma unroll 1
                for (int i = 0; i <= count; i++) {
                    if (i < count) {
                        note(job, i);
                        bar_sync(3, 128);
                        bring<true>(i);
                    }
                    if (i > 0) bring<false>(i - 1);
                }
                // Tables are written again.
                bar_sync(3, 128);
                ring.next();
            }
            tell<0>();
        }
        PB_FN unsigned char* table(int i) const { return of_block.tables + (u32)i % S::kTables * S::kTable; }
        // Where this thread's key of a stage lies.
        PB_FN void note(const HopperJob& job, int i) const {
            const Piece& piece = job.piece;
            const int key = first_key(piece) + i * S::kKeys + thread, end = end_key(piece);
            const u32 page = Keys::look_up(of_block.p, key, end, piece.first_page);
            Keys::note(of_block.p, page, key, job.k, job.v, table(i) + 16 * thread);
        }
        template <bool kOfKeys> PB_FN void bring(int i) {
            const HopperAttention& b = of_block;
            Ring<S::kStages>& ring = kOfKeys ? k_ring : v_ring;
            mbar_wait(of(kOfKeys ? b.barriers->k_empty : b.barriers->v_empty, ring.at), ring.phase ^ 1);
            constexpr int kLanes = S::kDim / 8, kAtOnce = 128 / kLanes;
            const int lane = thread % kLanes, row = thread / kLanes;
            const Shared to = (kOfKeys ? b.keys : b.values) + (int)ring.at * S::kKeyBytes + lane / 8 * S::kKeyPanel
                              + row * 128 + ((lane % 8 ^ row % 8) << 4);
            const unsigned char* from = table(i) + 16 * row;
#pragma unroll 4
            for (int r = 0; r < S::kKeys; r += kAtOnce) {
                const words<16> w = ld<16>(from + 16 * r);
                const bool exists = (w.w[0] & 1) == 0;
                const u64 at = kOfKeys ? (u64)w.w[1] << 32 | (w.w[0] & ~1u) : (u64)w.w[3] << 32 | w.w[2];
                cp_async16(to + r * 128, bits_of<const u8*>(at) + lane * 16, exists);
            }
            cp_async_commit();
            tell<1>();
            told = of(kOfKeys ? b.barriers->k_full : b.barriers->v_full, ring.at);
            untold = true;
            ring.next();
        }
        // Of the last copy that nobody knows of, when at most kLeft of those after it are under way.
        template <int kLeft> PB_FN void tell() {
            if (!untold) return;
            cp_async_wait<kLeft>();
            fence_async();
            mbar_arrive(told);
            untold = false;
        }
    };

    // Queries of a group, 64 rows. A row that does not exist is zeros.
    PB_FN void load_queries(const Piece& piece, int group) const {
        constexpr int kChunks = S::kDim / 8;
        const int thread = (int)threadIdx.x % 128, first = piece.tile * S::kRows + group * 64, rows = piece.qo_len * p.group;
        unsigned char* const to = queries + group * S::kPanels * S::kRowPanel;
#pragma unroll
        for (int i = thread; i < 64 * kChunks; i += 128) {
            const int row = i / kChunks, chunk = i % kChunks, at = first + row, token = groups().of(at);
            words<16> v = {};
            if (at < rows && piece.first_token + token < p.tokens) {
                const int head = piece.head * p.group + at - token * p.group;
                const i64 q = (i64)(piece.first_token + token) * p.q_stride + head * p.q_head_stride;
                v = ld_nc<16>((const u8*)p.q + q + chunk * 16);
            }
            st<16>(to + chunk / 8 * S::kRowPanel + row * 128 + ((chunk % 8 ^ row % 8) << 4), v);
        }
        fence_async();
        bar_sync(4 + group, 128);
    }

    using Scores = float[kColumns][4];
    using Output = float[kOut][4];
    using Weights = u32[S::kKeys / 16][4];

    PB_FN void score(Scores& s, Shared tile, int group) const {
        const u64 a = wgmma_operand(shared(queries) + group * S::kPanels * S::kRowPanel), b = wgmma_operand(tile);
        using Multiply = Wgmma<T, S::kKeys>;
        Multiply::template of<false>(s, a, b);
#pragma unroll
        for (int step = 1; step < S::kDim / 16; step++)
            Multiply::template of<true>(s, wgmma_step(a, step / 4 * S::kRowPanel + step % 4 * 32),
                                        wgmma_step(b, step / 4 * S::kKeyPanel + step % 4 * 32));
        wgmma_commit();
    }
    static PB_FN void add_values(Output& o, const Weights& w, Shared tile) {
        const u64 b = wgmma_operand_tall(tile, S::kKeyPanel);
#pragma unroll
        for (int step = 0; step < S::kKeys / 16; step++)
            Wgmma<T, S::kDim, false, true>::template of<true>(o, w[step], wgmma_step(b, step * 2048));
        wgmma_commit();
    }
    static PB_FN void weights(Weights& w, const Scores& s) {
#pragma unroll
        for (int i = 0; i < S::kKeys / 16; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) w[i][e] = convert<T>::pair(s[2 * i + e / 2][e % 2 * 2], s[2 * i + e / 2][e % 2 * 2 + 1]);
    }
    // Scores of keys that a row does not see become -inf; `low` and `high` are about the thread's first column.
    static PB_FN void hide(Scores& s, const int (&low)[2], const int (&high)[2], int key) {
        if (key >= low[0] && key >= low[1] && key + S::kKeys <= high[0] && key + S::kKeys <= high[1]) return;
#pragma unroll
        for (int j = 0; j < kColumns; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int at = key + 8 * j + e % 2;
                if (at < low[e / 2] || at >= high[e / 2]) s[j][e] = -kInf;
            }
    }
    // The warp has read a stage.
    static PB_FN void free(u64* empty, u32 at) {
        __syncwarp();
        if (lane_id() == 0) mbar_arrive(of(empty, at));
    }

    PB_FN void compute(int group) const {
        const int thread = (int)threadIdx.x % 128, lane = thread % 32, own = group * 64 + thread / 32 * 16 + lane / 4;
        Ring<2> ring;
        Ring<S::kStages> k_ring, v_ring;
#pragma unroll 1
        while (true) {
            mbar_wait(of(barriers->job_full, ring.at), ring.phase);
            const HopperJob& job = jobs[ring.at];
            if (!job.more) break;
            const Piece& piece = job.piece;
            load_queries(piece, group);
            const Span span{piece.qo_len, piece.kv_len};
            const int last = piece.qo_len * p.group - 1, end = end_key(piece), count = stages(piece);
            int low[2], high[2], key = first_key(piece) + lane % 4 * 2;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int i = groups().of(min_i(piece.tile * S::kRows + own + 8 * h, last));
                low[h] = span.first(i, p.window);
                high[h] = min_i(span.end(i, p.causal != 0), end);
            }
            Softmax softmax;
            Output o;
#pragma unroll
            for (int j = 0; j < kOut; j++) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.f;
            if (count > 0) {
                Scores s;
                Weights w;
                float change[2];
                mbar_wait(of(barriers->k_full, k_ring.at), k_ring.phase);
                wgmma_fence();
                score(s, keys + (int)k_ring.at * S::kKeyBytes, group);
                wgmma_wait<0>();
                wgmma_hold(s);
                free(barriers->k_empty, k_ring.at);
                k_ring.next();
                hide(s, low, high, key);
                softmax.exponentials(s, change, p.scale_log2);
                weights(w, s);
#pragma unroll 1
                for (int i = 1; i < count; i++) {
                    key += S::kKeys;
                    mbar_wait(of(barriers->k_full, k_ring.at), k_ring.phase);
                    wgmma_fence();
                    score(s, keys + (int)k_ring.at * S::kKeyBytes, group);
                    mbar_wait(of(barriers->v_full, v_ring.at), v_ring.phase);
                    wgmma_fence();
                    add_values(o, w, values + (int)v_ring.at * S::kKeyBytes);
                    wgmma_wait<1>();
                    wgmma_hold(s);
                    free(barriers->k_empty, k_ring.at);
                    k_ring.next();
                    hide(s, low, high, key);
                    const bool changed = softmax.exponentials(s, change, p.scale_log2);
                    wgmma_wait<0>();
                    wgmma_hold(o);
                    free(barriers->v_empty, v_ring.at);
                    v_ring.next();
                    if (changed) Softmax::rescale(o, change);
                    weights(w, s);
                }
                mbar_wait(of(barriers->v_full, v_ring.at), v_ring.phase);
                wgmma_fence();
                add_values(o, w, values + (int)v_ring.at * S::kKeyBytes);
                wgmma_wait<0>();
                wgmma_hold(o);
                free(barriers->v_empty, v_ring.at);
                v_ring.next();
            }
            softmax.finish();
            write(piece, o, softmax, own, lane);
            // Nobody reads the job, or these queries, any more.
            bar_sync(4 + group, 128);
            if (thread == 0) mbar_arrive(of(barriers->job_empty, ring.at));
            ring.next();
        }
    }

    PB_FN void write(const Piece& piece, const Output& o, const Softmax& softmax, int own, int lane) const {
        const int first = piece.tile * S::kRows;
        const Results results{p, piece, first, min_i(piece.qo_len * p.group, first + S::kRows)};
        const bool cut = piece.count > 1;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = own + 8 * h;
            if (first + row >= results.end) continue;
            const float lse = softmax.lse(h, p.scale_log2);
            float scale = softmax.sum[h] == 0.f ? 0.f : 1.f / softmax.sum[h];
            if (cut) {
                float* const to = results.slot(piece.slot);
#pragma unroll
                for (int j = 0; j < kOut; j++)
                    st<8>(to + row * S::kDim + 8 * j + lane % 4 * 2,
                          {{bits_of<u32>(o[j][2 * h] * scale), bits_of<u32>(o[j][2 * h + 1] * scale)}});
                if (lane % 4 == 0) st<4>(to + S::kRows * S::kDim + row, {{bits_of<u32>(lse)}});
                continue;
            }
            u8* const to = results.place(row, lse, scale, lane % 4 == 0);
            if (!to) continue;
#pragma unroll
            for (int j = 0; j < kOut; j++)
                st<4>(to + 2 * (8 * j + lane % 4 * 2), {{convert<T>::pair(o[j][2 * h] * scale, o[j][2 * h + 1] * scale)}});
        }
        if (cut) results.merge(before);
    }
};

template <class S> PB_FN void hopper_attention(const pb_batch_attention_params& p) {
    using Attention = HopperAttention<S>;
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(HopperJob, jobs, 2);
    PB_SHARED_ARRAY(Walk, walk, 1);
    PB_SHARED_ARRAY(typename Attention::Barriers, barriers, 1);
    PB_SHARED_ARRAY(u32, before, 1);
    Attention(p, jobs, walk, barriers, before, smem).run();
}

}  // namespace pb
#endif
