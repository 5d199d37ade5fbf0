// Attention with tensor cores that every architecture from sm_80 on has (mma.sync, cp.async). params.h is the contract.
#pragma once
#include "attention/batch_attention/params.h"
#include "attention/keys.cuh"
#include "attention/pieces.cuh"
#include "attention/rotate.cuh"
#include "attention/score.cuh"
#include "attention/softmax.cuh"

#if PB_DEVICE && __CUDA_ARCH__ < 900
#define PB_DEVICE_ARCH_BELOW_90 true
#else
#define PB_DEVICE_ARCH_BELOW_90 false
#endif
#if PB_DEVICE && __CUDA_ARCH__ >= 1000
#define PB_DEVICE_ARCH_FROM_100 true
#else
#define PB_DEVICE_ARCH_FROM_100 false
#endif

namespace pb {

// How a block is arranged for tiles of kRows rows of queries: kWide warps take rows, kDeep sets of warps take keys in
// turn. A set takes kKeys keys at a time and has kStages buffers for them; their
// scores are computed for kPart keys at a time.
template <class T_, class Kv_, int kRows_, int kQk_, int kVo_, int kStages_, int kKeys_, int kPart_, int kWarps_,
          class Score_ = PlainScore>
struct AttentionShape {
    using T = T_;
    using Kv = Kv_;
    using Score = Score_;
    static constexpr int kRows = kRows_, kQk = kQk_, kVo = kVo_, kStages = kStages_, kKeys = kKeys_, kPart = kPart_;
    static constexpr int kThreads = 32 * kWarps_;
    static constexpr int kWide = kRows == 16 ? 1 : kWarps_, kDeep = kWarps_ / kWide, kSet = 32 * kWide;
    static constexpr int kPer = kRows / 16 / kWide;  // row tiles of a warp
    using Keys = KeyTile<Kv, kQk, kVo, kKeys, kSet>;
    using Query = TileOf<kQk * 2>;
    static constexpr int kQueryBytes = kRows * kQk * 2;
    static constexpr bool kHeld = kPer == 1 && kPart * kQk != 16 * 256;  // whether the operands of queries stay in registers
    static constexpr int kTablesAt = kQueryBytes + kDeep * kStages * Keys::kBytes;
    static constexpr int kShared = kTablesAt + kDeep * Keys::kTables;
};

// The arrangement for a tile, as `Tile` in attention.rs has it.
template <int kRows, int kQk, bool kHeavy> struct AttentionChoice {
    static constexpr int kSets = kRows == 16 ? (kQk > 192 ? 2 : 4) : 1, kWarps = kRows == 16 ? kSets : 4;
    static constexpr int kKeys = kRows == 16 ? 16 : kQk > 128 ? 32 : kQk > 64 ? 64 : 128;
    // Half as many scores at a time where registers do not suffice for all: while keys are widened or scores modified, and
    // by the compiler's choice on other architectures than sm_90.
    static constexpr bool kTight = (PB_DEVICE_ARCH_FROM_100 && kRows == 128 && kQk == 128)
        || ((kHeavy || PB_DEVICE_ARCH_BELOW_90) && (kRows == 128 ? kQk == 128 || (kHeavy && kQk == 192) : kQk == 256 || (kHeavy && PB_DEVICE_ARCH_BELOW_90)));
    static constexpr int kPart = kKeys == 128 ? (kHeavy ? 32 : 64) : kRows > 16 && kTight ? kKeys / (kHeavy && kKeys == 64 && PB_DEVICE_ARCH_BELOW_90 ? 4 : 2) : kKeys;
    // Blocks of a multiprocessor. Three that load are worth more than two with more buffers each.
    static constexpr int kBlocks = kRows == 16 && kQk != 192 ? 3 : 2;
};
template <class T, class Kv, int kRows, int kQk, int kVo, class Score = PlainScore,
          class C = AttentionChoice<kRows, kQk, sizeof(Kv) == 1 || !Score::kPlain>>
struct AttentionTile : AttentionShape<T, Kv, kRows, kQk, kVo, 2, C::kKeys, C::kPart, C::kWarps, Score> {
    static constexpr int kBlocks = C::kBlocks;
};

// What the block works at: one piece, looked up by one thread. It lies in shared memory because registers are scarce.
struct Job {
    Walk walk;
    Piece piece;
    int more;
    const u8 *k, *v;      // of the head of keys
    int seen[8][2];       // for each warp: from which key to before which all of its rows see all
};

template <class S> struct Attention {
    using T = typename S::T;
    using Keys = typename S::Keys;
    static constexpr int kOut = S::kVo / 8, kColumns = S::kPart / 8, kSteps = S::kQk / 16;
    static constexpr int kParts = S::kKeys / S::kPart;
    static constexpr int kTile = S::kDeep * S::kKeys;  // keys that the block takes at once

    const pb_batch_attention_params& p;
    Job* const job;
    unsigned char *const smem, *const tables;  // all of the shared memory; `tables` and `stages` of this thread's set
    const Shared queries, stages;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int set = warp / S::kWide, set_thread = thread % S::kSet, first_row = warp % S::kWide * 16 * S::kPer;
    float o[S::kPer][kOut][4];
    Softmax softmax[S::kPer];

    PB_FN Attention(const pb_batch_attention_params& p, Job* job, unsigned char* smem)
        : p(p), job(job), smem(smem), tables(smem + S::kTablesAt + (int)threadIdx.x / S::kSet * Keys::kTables),
          queries(shared(smem)), stages(queries + S::kQueryBytes + (int)threadIdx.x / S::kSet * S::kStages * Keys::kBytes) {}

    // The threads of a set, which share its stages.
    PB_FN void meet() const {
        if constexpr (S::kWide == 1) __syncwarp();
        else __syncthreads();
    }
    PB_FN Shared stage(int n) const { return stages + (int)((u32)n % S::kStages) * Keys::kBytes; }
    PB_FN Divisor groups() const { return {p.group_multiply, p.group_shift}; }
    PB_FN int first() const { return job->piece.tile * S::kRows; }
    PB_FN int rows() const { return job->piece.qo_len * p.group; }

    PB_FN void find_job() const {
        job->more = job->walk.next(p, job->piece);
        if (!job->more) return;
        job->k = (const u8*)p.k + job->piece.head * p.k_head_stride;
        job->v = (const u8*)p.v + job->piece.head * p.v_head_stride;
    }
    // Where a row of queries is; nothing for one that does not exist.
    PB_FN const u8* query(int row) const {
        const int at = first() + row, token = groups().of(at);
        if (at >= rows() || job->piece.first_token + token >= p.tokens) return nullptr;
        const int head = job->piece.head * p.group + at - token * p.group;
        return (const u8*)p.q + (job->piece.first_token + token) * p.q_stride + head * p.q_head_stride;
    }
    PB_FN void load_queries() const {
        if constexpr (!Keys::kNarrow) {
            constexpr int kChunks = S::Query::kChunks;
#pragma unroll 1
            for (int i = thread; i < S::kRows * kChunks; i += S::kThreads) {
                const int row = i / kChunks, chunk = i % kChunks;
                const u8* from = query(row);
                cp_async16(queries + S::Query::any(row, chunk), from ? from + chunk * 16 : (const u8*)p.q, from);
            }
        } else {
            // As 8-bit keys lie: of 16 elements a thread has four side by side, which are elements 2 i, 2 i + 1, 2 i + 8 and
            // 2 i + 9 of the product.
            constexpr int kBlocks = S::kQk / 16;
#pragma unroll 1
            for (int i = thread; i < S::kRows * kBlocks; i += S::kThreads) {
                const int row = i / kBlocks, block = i % kBlocks;
                const u8* from = query(row);
                words<16> x = {}, y = {};
                if (from) x = ld_nc<16>(from + block * 32), y = ld_nc<16>(from + block * 32 + 16);
                st<16>(smem + S::Query::any(row, 2 * block), {{x.w[0], x.w[2], y.w[0], y.w[2]}});
                st<16>(smem + S::Query::any(row, 2 * block + 1), {{x.w[1], x.w[3], y.w[1], y.w[3]}});
            }
        }
    }
    PB_FN void load_q(u32 (&a)[4], int m, int step) const {
        const int at = S::Query::at(first_row + (lane & 15), lane >> 4);
        ldmatrix_x4<false>(a, S::Query::step(queries + at, 2 * step) + m * 16 * S::Query::kBytes);
    }
    // Of scores in the softmax; modified ones are scaled already.
    PB_FN float softmax_scale() const { return S::Score::kPlain ? p.scale_log2 : 1.f; }
    // What the variant makes of scores. Keys that do not exist are for `hide`.
    PB_FN void modify(float (&s)[S::kPer][kColumns][4], int first_key) const {
        const int last = rows() - 1, row = first() + first_row + lane / 4;
        const auto place = [&](int r) {
            ScorePlace at;
            at.request = job->piece.request, at.qo_len = job->piece.qo_len, at.kv_len = job->piece.kv_len;
            r = min_i(r, last);
            at.query = groups().of(r);
            at.head = job->piece.head * p.group + r - at.query * p.group;
            at.key = first_key + lane % 4 * 2;
            return at;
        };
#pragma unroll
        for (int m = 0; m < S::kPer; m++) {
            if constexpr (S::Score::kByTile) {
                S::Score::apply(s[m], place(row + 16 * m), place(row + 16 * m + 8), p);
            } else {
#pragma unroll 1
                for (int h = 0; h < 2; h++) {
                    ScorePlace at = place(row + 16 * m + 8 * h);
                    const int first = at.key;
#pragma unroll
                    for (int j = 0; j < kColumns; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            at.key = first + 8 * j + e;
                            const float x = S::Score::score(h ? s[m][j][2 + e] : s[m][j][e], at, p);
                            const float y = at.key < at.kv_len && !S::Score::sees(at, p) ? -kInf : x;
                            if (h) s[m][j][2 + e] = y;
                            else s[m][j][e] = y;
                        }
                }
            }
        }
    }
    // Scores of keys that a row does not see become -inf.
    PB_FN void hide(float (&s)[S::kPer][kColumns][4], int key) const {
        const Span span{job->piece.qo_len, job->piece.kv_len};
        const int last = rows() - 1, row = first() + first_row + lane / 4;
#pragma unroll
        for (int m = 0; m < S::kPer; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int i = groups().of(min_i(row + 16 * m + 8 * h, last));
                const int low = span.first(i, p.window) - key - lane % 4 * 2, high = span.end(i, p.causal != 0) - key - lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < kColumns; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        if (8 * j + e < low || 8 * j + e >= high) s[m][j][2 * h + e] = -kInf;
            }
    }

    PB_FN void run() {
        if (thread == 0) job->walk.begin((const i32*)p.plan);
#pragma unroll 1
        while (true) {
            if (thread == 0) find_job();
            __syncthreads();
            if (!job->more) break;
            load_queries();
            cp_async_commit();
            if constexpr (!S::Score::kPlain && !Keys::kNarrow) {
                if (p.rotate) turn_queries();
            }
            attend();
            cp_async_wait<0>();
            __syncthreads();
            write();
            __syncthreads();
        }
    }

    // Rotary embedding of queries and keys by their positions.
    PB_FN void turn_queries() const {
        cp_async_wait<0>();
        __syncthreads();
        constexpr int kHalf = S::kQk / 16;
#pragma unroll 1
        for (int i = thread; i < S::kRows * kHalf; i += S::kThreads) {
            const int row = i / kHalf, position = groups().of(first() + row) + job->piece.kv_len - job->piece.qo_len;
            turn<T, typename S::Query>(p, smem, row, i % kHalf, kHalf, position);
        }
        __syncthreads();
    }
    PB_FN void turn_keys(int n) const {
        constexpr int kHalf = S::kQk / 16;
        unsigned char* const tile = smem + S::kQueryBytes + (set * S::kStages + (int)((u32)n % S::kStages)) * Keys::kBytes;
#pragma unroll 1
        for (int i = set_thread; i < S::kKeys * kHalf; i += S::kSet)
            turn<T, typename Keys::K>(p, tile, i / kHalf, i % kHalf, kHalf, key(n) + i / kHalf);
        meet();
    }

    // The first key of this set in tile n, and the table of where its keys lie.
    PB_FN int key(int n) const { return n * kTile + set * S::kKeys; }
    PB_FN unsigned char* table(int n) const { return tables + (n & 1) * Keys::kTable; }
    PB_FN u32 look_up(int n) const {
        if (set_thread >= S::kKeys) return ~0u;
        return Keys::look_up(p, key(n) + set_thread, job->piece.kv_len, job->piece.first_page);
    }
    PB_FN void note(int n, u32 page) const {
        if (set_thread < S::kKeys) Keys::note(p, page, key(n) + set_thread, job->k, job->v, table(n) + 16 * set_thread);
    }

    PB_FN void attend() {
        int n = job->piece.first;
        typename Keys::Rows rows;
#pragma unroll 1
        for (int i = n; i < n + S::kStages - 1; i++) {
            if (i < job->piece.end) {
                note(i, look_up(i));
                meet();
                rows.read(set_thread, table(i));
                Keys::copy(set_thread, rows, stage(i));
            }
            cp_async_commit();
        }
        // With fewer tiles nobody has met since a table was last read.
        if (n + S::kStages - 1 < job->piece.end) note(n + S::kStages - 1, look_up(n + S::kStages - 1));
        if (lane == 0) {
            const Span span{job->piece.qo_len, job->piece.kv_len};
            const int last = this->rows() - 1, row = first() + first_row;
            job->seen[warp][0] = span.first(groups().of(min_i(row + 16 * S::kPer - 1, last)), p.window);
            job->seen[warp][1] = span.end(groups().of(min_i(row, last)), p.causal != 0);
        }
        __syncwarp();
        if constexpr (S::kWide == 1) rows.read(set_thread, table(n + S::kStages - 1));
#pragma unroll
        for (int m = 0; m < S::kPer; m++) {
            softmax[m] = Softmax{};
#pragma unroll
            for (int j = 0; j < kOut; j++) o[m][j][0] = o[m][j][1] = o[m][j][2] = o[m][j][3] = 0.f;
        }
        Query q;
        if constexpr (S::kHeld || S::kWide == 1) {
            // All threads have loaded queries.
            cp_async_wait<S::kStages - 1>();
            __syncthreads();
        }
        if constexpr (S::kHeld) {
#pragma unroll
            for (int step = 0; step < kSteps; step++) load_q(q[step], 0, step);
        }
        // What does not change is read from shared memory where it is needed: registers are for scores and output.
#pragma unroll 1
        for (; n < job->piece.end; n++) {
            cp_async_wait<S::kStages - 2>();
            meet();
            u32 page = 0;
            if constexpr (S::kWide > 1) rows.read(set_thread, table(n + S::kStages - 1));
            if (n + S::kStages - 1 < job->piece.end) Keys::copy(set_thread, rows, stage(n + S::kStages - 1));
            cp_async_commit();
            if constexpr (!S::Score::kPlain && !Keys::kNarrow) {
                if (p.rotate) turn_keys(n);
            }
#pragma unroll 1
            for (int part = 0; part < kParts; part++) {
                const Shared tile = stage(n);
                const int first = key(n) + part * S::kPart;
                Scores s;
                score(s, q, tile + part * S::kPart * Keys::K::kBytes);
                if constexpr (!S::Score::kPlain) modify(s, first);
                if (first < job->seen[warp][0] || first + S::kPart > job->seen[warp][1]) hide(s, first);
#pragma unroll
                for (int m = 0; m < S::kPer; m++) softmax[m].take(s[m], o[m], softmax_scale());
                // It arrives while values are added up.
                if (part == kParts - 1) page = look_up(n + S::kStages);
                add_values(s, tile + part * S::kPart * Keys::V::kBytes);
            }
            note(n + S::kStages, page);
            if constexpr (S::kWide == 1) {
                // A warp alone reads it now, so that the next copy waits for nothing.
                meet();
                rows.read(set_thread, table(n + S::kStages));
            }
        }
    }

    using Scores = float[S::kPer][kColumns][4];
    using Query = u32[S::kHeld ? kSteps : 1][4];

    PB_FN void score(Scores& s, const Query& q, Shared tile) const {
        const Shared keys = tile + Keys::lane_k(lane);
#pragma unroll
        for (int m = 0; m < S::kPer; m++)
#pragma unroll
            for (int j = 0; j < kColumns; j++) s[m][j][0] = s[m][j][1] = s[m][j][2] = s[m][j][3] = 0.f;
        // Operands are loaded one use ahead; one load of 8-bit keys serves two steps.
        constexpr int kPairs = kColumns / 2, kLoads = kSteps / Keys::kSteps * kPairs;
        u32 a[2][Keys::kSteps][S::kPer][4], r[2][4];
        load_queries_of(a[0], q, 0);
        Keys::load_k(r[0], keys, 0, 0);
#pragma unroll
        for (int i = 0; i < kLoads; i++) {
            const int steps = i / kPairs, j = i % kPairs, next = i + 1;
            if (next < kLoads) {
                if (next % kPairs == 0) load_queries_of(a[next / kPairs % 2], q, next / kPairs);
                Keys::load_k(r[next % 2], keys, 16 * (next % kPairs), next / kPairs);
            }
#pragma unroll
            for (int step = 0; step < Keys::kSteps; step++) {
                u32 b[4];
                Keys::template operand_k<T>(b, r[i % 2], step);
#pragma unroll
                for (int m = 0; m < S::kPer; m++) {
                    mma_16816<T>(s[m][2 * j], a[steps % 2][step][m], b[0], b[1]);
                    mma_16816<T>(s[m][2 * j + 1], a[steps % 2][step][m], b[2], b[3]);
                }
            }
        }
    }
    PB_FN void load_queries_of(u32 (&a)[Keys::kSteps][S::kPer][4], const Query& q, int steps) const {
#pragma unroll
        for (int i = 0; i < Keys::kSteps; i++)
#pragma unroll
            for (int m = 0; m < S::kPer; m++) {
                if constexpr (S::kHeld) {
#pragma unroll
                    for (int e = 0; e < 4; e++) a[i][m][e] = q[steps * Keys::kSteps + i][e];
                } else {
                    load_q(a[i][m], m, steps * Keys::kSteps + i);
                }
            }
    }
    PB_FN void add_values(const Scores& s, Shared tile) {
        const Shared values = tile + Keys::lane_v(lane);
#pragma unroll
        for (int j = 0; j < kColumns / 2; j++) {
            u32 a[S::kPer][4];
#pragma unroll
            for (int m = 0; m < S::kPer; m++) {
                a[m][0] = convert<T>::pair(s[m][2 * j][0], s[m][2 * j][1]);
                a[m][1] = convert<T>::pair(s[m][2 * j][2], s[m][2 * j][3]);
                a[m][2] = convert<T>::pair(s[m][2 * j + 1][0], s[m][2 * j + 1][1]);
                a[m][3] = convert<T>::pair(s[m][2 * j + 1][2], s[m][2 * j + 1][3]);
            }
            constexpr int kLoads = kOut / 2 / Keys::kSteps;
            u32 r[2][4];
            Keys::load_v(r[0], values, 16 * j, 0);
#pragma unroll
            for (int i = 0; i < kLoads; i++) {
                if (i + 1 < kLoads) Keys::load_v(r[(i + 1) % 2], values, 16 * j, i + 1);
#pragma unroll
                for (int step = 0; step < Keys::kSteps; step++) {
                    const int d = i * Keys::kSteps + step;
                    u32 b[4];
                    Keys::template operand_v<T>(b, r[i % 2], step);
#pragma unroll
                    for (int m = 0; m < S::kPer; m++) {
                        mma_16816<T>(o[m][2 * d], a[m], b[0], b[1]);
                        mma_16816<T>(o[m][2 * d + 1], a[m], b[2], b[3]);
                    }
                }
            }
        }
    }

    PB_FN float* slot(i64 i) const { return (float*)p.partial + i * (S::kRows * (S::kVo + 1)); }

    // Rows [kRows][kVo] of a piece, and then their lse, all f32.
    PB_FN void write() {
        const Piece piece = job->piece;
        const int first_token = job->piece.first_token, first = this->first(), rows = this->rows();
        const bool cut = piece.count > 1;
        float* const own = slot(piece.slot);
        if constexpr (S::kDeep == 1) {
#pragma unroll
            for (int m = 0; m < S::kPer; m++) {
                softmax[m].finish();
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = first_row + 16 * m + 8 * h + lane / 4;
                    if (first + row >= rows) continue;
                    const float lse = softmax[m].lse(h, softmax_scale());
                    float scale = softmax[m].sum[h] == 0.f ? 0.f : 1.f / softmax[m].sum[h];
                    if (cut) {
                        float* to = own + row * S::kVo;
#pragma unroll
                        for (int j = 0; j < kOut; j++) {
                            float x[2];
                            Keys::two(x, o[m], j, h);
                            st<8>(to + Keys::column(j, lane), {{bits_of<u32>(x[0] * scale), bits_of<u32>(x[1] * scale)}});
                        }
                        if (lane % 4 == 0) st<4>(own + S::kRows * S::kVo + row, {{bits_of<u32>(lse)}});
                        continue;
                    }
                    const int token = groups().of(first + row);
                    const int head = piece.head * p.group + first + row - token * p.group;
                    if (first_token + token >= p.tokens) continue;
                    float whole = lse;
                    scale *= p.v_scale * sink(p.sinks, head, whole);
                    u8* to = (u8*)p.o + (i64)(first_token + token) * p.o_stride + head * p.o_head_stride;
#pragma unroll
                    for (int j = 0; j < kOut; j++) {
                        float x[2];
                        Keys::two(x, o[m], j, h);
                        st<4>(to + 2 * Keys::column(j, lane), {{convert<T>::pair(x[0] * scale, x[1] * scale)}});
                    }
                    if (p.lse && lane % 4 == 0) write_lse(first_token + token, head, whole);
                }
            }
        } else {
            // The sets meet in shared memory, where nobody reads keys any more.
            float* const all = (float*)smem;  // [kDeep][kRows][kVo], then lse [kDeep][kRows]
            float* const lses = all + S::kDeep * S::kRows * S::kVo;
            softmax[0].finish();
            static_assert(S::kPer == 1 && S::kDeep * S::kRows * (S::kVo + 1) * 4 <= S::kShared, "fits");
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = 8 * h + lane / 4;
                const float scale = softmax[0].sum[h] == 0.f ? 0.f : 1.f / softmax[0].sum[h];
                float* to = all + (set * S::kRows + row) * S::kVo;
#pragma unroll
                for (int j = 0; j < kOut; j++) {
                    float x[2];
                    Keys::two(x, o[0], j, h);
                    to[Keys::column(j, lane)] = x[0] * scale;
                    to[Keys::column(j, lane) + 1] = x[1] * scale;
                }
                if (lane % 4 == 0) lses[set * S::kRows + row] = softmax[0].lse(h, softmax_scale());
            }
            __syncthreads();
            constexpr int kQuads = S::kVo / 4;
#pragma unroll 1
            for (int i = thread; i < S::kRows * kQuads; i += S::kThreads) {
                const int row = i / kQuads, quad = i % kQuads;
                if (first + row >= rows) break;
                float max = -kInf, sum = 0.f, x[4] = {};
#pragma unroll
                for (int d = 0; d < S::kDeep; d++) max = max_f(max, lses[d * S::kRows + row]);
#pragma unroll
                for (int d = 0; d < S::kDeep; d++) {
                    const float w = lses[d * S::kRows + row] == -kInf ? 0.f : exp2_fast(lses[d * S::kRows + row] - max);
                    sum += w;
#pragma unroll
                    for (int e = 0; e < 4; e++) x[e] += w * all[(d * S::kRows + row) * S::kVo + 4 * quad + e];
                }
                float lse = sum == 0.f ? -kInf : max + log2f(sum);
                const float scale = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
                for (int e = 0; e < 4; e++) x[e] *= scale;
                if (cut) {
                    st<16>(own + row * S::kVo + 4 * quad,
                           {{bits_of<u32>(x[0]), bits_of<u32>(x[1]), bits_of<u32>(x[2]), bits_of<u32>(x[3])}});
                    if (quad == 0) st<4>(own + S::kRows * S::kVo + row, {{bits_of<u32>(lse)}});
                } else {
                    write_quad(piece, first_token, first + row, quad, x, lse);
                }
            }
        }
        if (cut) merge(piece, first_token, first, rows);
    }
    PB_FN void write_lse(int token, int head, float lse) const {
        st<4>((u8*)p.lse + (i64)token * p.lse_stride + head * 4, {{bits_of<u32>(lse)}});
    }
    PB_FN void write_quad(const Piece& piece, int first_token, int row, int quad, const float (&x)[4], float lse) const {
        const int token = Divisor{p.group_multiply, p.group_shift}.of(row);
        const int head = piece.head * p.group + row - token * p.group;
        if (first_token + token >= p.tokens) return;
        const float scale = p.v_scale * sink(p.sinks, head, lse);
        u8* to = (u8*)p.o + (i64)(first_token + token) * p.o_stride + head * p.o_head_stride + quad * 8;
        st<8>(to, {{convert<T>::pair(x[0] * scale, x[1] * scale), convert<T>::pair(x[2] * scale, x[3] * scale)}});
        if (p.lse && quad == 0) write_lse(first_token + token, head, lse);
    }
    static constexpr int kTogether = 8;  // pieces
    PB_FN void merge(const Piece& piece, int first_token, int first, int rows) {
        PB_SHARED_ARRAY(u32, before, 1);
        u32* const tickets = (u32*)p.plan + piece.ticket;
        __syncthreads();
        if (thread == 0) before[0] = ticket(tickets);
        __syncthreads();
        if (before[0] != (u32)piece.count - 1) return;
        if (thread == 0) st<4>(tickets, {{0}});  // for the next launch
        // Nobody needs keys any more. Loads of many pieces are under way together: there may be as many as blocks.
        constexpr int kQuads = S::kVo / 4;
        float* const greatest = (float*)smem;
        for (int row = warp; row < S::kRows && first + row < rows; row += S::kThreads / 32) {
            float max = -kInf;
            for (int n = lane; n < piece.count; n += 32) max = max_f(max, lse_of(piece, n, row));
            max = warp_max(max);
            if (lane == 0) greatest[row] = max;
        }
        __syncthreads();
#pragma unroll 1
        for (int i = thread; i < S::kRows * kQuads; i += S::kThreads) {
            const int row = i / kQuads, quad = i % kQuads;
            if (first + row >= rows) break;
            const float max = greatest[row];
            float sum = 0.f, x[4] = {};
#pragma unroll 1
            for (int n = 0; n < piece.count; n += kTogether) {
                float lse[kTogether];
                words<16> y[kTogether];
#pragma unroll
                for (int j = 0; j < kTogether; j++) {
                    // The last one again, with no weight, where there are no more.
                    const int at = min_i(n + j, piece.count - 1);
                    lse[j] = n + j < piece.count ? lse_of(piece, at, row) : -kInf;
                    y[j] = ld<16>(part(piece, at) + row * S::kVo + 4 * quad);
                }
#pragma unroll
                for (int j = 0; j < kTogether; j++) {
                    const float w = lse[j] == -kInf ? 0.f : exp2_fast(lse[j] - max);
                    sum += w;
#pragma unroll
                    for (int e = 0; e < 4; e++) x[e] += w * bits_of<float>(y[j].w[e]);
                }
            }
            const float scale = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] *= scale;
            write_quad(piece, first_token, first + row, quad, x, sum == 0.f ? -kInf : max + log2f(sum));
        }
    }
    PB_FN float lse_of(const Piece& piece, int n, int row) const {
        return bits_of<float>(ld<4>(part(piece, n) + S::kRows * S::kVo + row).w[0]);
    }
    PB_FN const float* part(const Piece& piece, int n) const {
        return slot(piece.begin + (i64)n * piece.step + (n == 0 ? piece.extra : 0));
    }
};

template <class S> PB_FN void batch_attention(const pb_batch_attention_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(Job, job, 1);
    Attention<S>(p, job, smem).run();
}

}  // namespace pb
