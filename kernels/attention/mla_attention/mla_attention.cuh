// Multi-head latent attention with tensor cores that every architecture from sm_80 on has. params.h is the contract.
#pragma once
#include "attention/latent.cuh"
#include "attention/mla_attention/params.h"
#include "attention/rows.cuh"
#include "parbake/barrier.cuh"

namespace pb {

// How a block is arranged. Rows of queries are divided among kGroups groups of warps. For scores, a warp of a group takes
// 16 rows and kPart keys; for the output, all rows of its group and kColumns columns, because an output of 512 columns
// has room in the registers of all warps only. So probabilities pass through shared memory.
template <class T_, int kRows_, int kKeys_, int kStages_, int kWarps_, int kGroups_, int kSplit_> struct MlaShape {
    using T = T_;
    static constexpr int kRows = kRows_, kKeys = kKeys_, kStages = kStages_, kWarps = kWarps_, kGroups = kGroups_;
    static constexpr int kThreads = 32 * kWarps, kOf = kWarps / kGroups;  // warps of a group
    static constexpr int kDeep = kWarps / (kRows / 16), kPart = kKeys / kDeep;
    static constexpr int kPer = kRows / kGroups / 16, kColumns = Latent::kNope / kOf;
    static constexpr int kSplit = kSplit_;             // warps that share the scores of 32 rows, element by element
    static constexpr int kDepth = kRows == 16 ? 3 : 2;  // loads of values that are under way
    static constexpr int kUnit = 64, kRatio = kUnit / kKeys;  // keys of what the plan calls a tile, and tiles of it
    static_assert(kPer >= 1 && kPart % 8 == 0 && kColumns % 64 == 0 && kUnit % kKeys == 0, "whole tiles");
    static_assert(kOf % 4 == 0 && kWarps <= 8, "a group has whole words");
    using Keys = LatentTile<kKeys, kThreads>;
    using Row = Latent::Row;
    using Weights = TileOf<(kKeys < 32 ? 32 : kKeys) * 2>;
    // Shared memory: queries, stages, weights, and f32: bases or sums of parts, factors, bases.
    static constexpr int kStagesAt = kRows * Row::kBytes, kWeightsAt = kStagesAt + kStages * Keys::kBytes;
    static constexpr int kFloatsAt = kWeightsAt + kRows * Weights::kBytes;
    static constexpr int kShared = kFloatsAt + 4 * kRows * (kDeep + 2);
};

// The arrangement for a tile, as `Tile` in attention.rs has it.
template <class T, int kRows, int kKeys>
using MlaTile = MlaShape<T, kRows, kKeys, kKeys == 16 ? 1 : 2, kRows == 16 ? 4 : 8, kRows == 16 ? 1 : 2, kRows == 64 && kKeys >= 32 ? 2 : 1>;

// What the block works at: one piece, looked up by one thread. It lies in shared memory because registers are scarce.
struct MlaJob {
    Walk walk;
    Piece piece;
    int more;
    u32 before;
    alignas(4) u8 far[8];  // of warps: whether one of its scores is far above its row's base
};

template <class S> struct MlaAttention {
    using T = typename S::T;
    using Keys = typename S::Keys;
    using Row = typename S::Row;
    using Output = Rows<pb_mla_attention_params, T, S::kRows, Latent::kNope, S::kThreads>;
    static constexpr int kSteps = Latent::kQk / 16, kOut = S::kColumns / 8, kScores = S::kPart / 8;

    const pb_mla_attention_params& p;
    MlaJob* const job;
    const Shared smem;
    float *const parts, *const factors, *const bases;  // [kDeep][kRows], [kRows], [kRows]
    u8* const weights;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int group = warp / S::kOf, of_group = warp % S::kOf;
    const int row = group * 16 * S::kPer, column = of_group * S::kColumns;  // of the output
    const int side = of_group % S::kSplit, part = of_group / S::kSplit % S::kDeep;  // of elements, of keys
    const int score_row = row + (of_group / (S::kSplit * S::kDeep) * S::kSplit + side) * 16;
    float o[S::kPer][kOut][4];
    float base[2], sum[2];  // of the rows of scores, the latter this thread's part

    PB_FN MlaAttention(const pb_mla_attention_params& p, MlaJob* job, u8* smem)
        : p(p), job(job), smem(shared(smem)), parts((float*)(smem + S::kFloatsAt)), factors(parts + S::kDeep * S::kRows),
          bases(factors + S::kRows), weights(smem + S::kWeightsAt) {}

    PB_FN Shared stage(int i) const { return smem + S::kStagesAt + i * Keys::kBytes; }
    PB_FN Divisor groups() const { return {p.group_multiply, p.group_shift}; }
    PB_FN int first() const { return job->piece.tile * S::kRows; }
    PB_FN int rows() const { return job->piece.qo_len * p.group; }
    // The warps of a group.
    PB_FN void meet() const {
        if constexpr (S::kGroups == 1) __syncthreads();
        else bar_sync(1 + group, 32 * S::kOf);
    }

    PB_FN void load_queries() const {
        constexpr int kChunks = Row::kChunks;
        const int rows = this->rows(), first = this->first();
#pragma unroll 2
        for (int i = thread; i < S::kRows * kChunks; i += S::kThreads) {
            const int row = i / kChunks, chunk = i % kChunks, token = groups().of(first + row);
            const bool exists = first + row < rows && job->piece.first_token + token < p.tokens;
            const i64 at = exists ? job->piece.first_token + token : 0;
            const int head = exists ? first + row - token * p.group : 0;
            const u8* from = (const u8*)p.q_nope + at * p.q_nope_stride + head * p.q_nope_head_stride + chunk * 16;
            if (chunk >= Latent::kNopeChunks)
                from = (const u8*)p.q_pe + at * p.q_pe_stride + head * p.q_pe_head_stride + (chunk - Latent::kNopeChunks) * 16;
            cp_async16(smem + Row::at(row, chunk % 8) + chunk / 8 * 128, from, exists);
        }
    }

    PB_FN void run() {
        if (thread == 0) job->walk.begin((const i32*)p.plan);
#pragma unroll 1
        while (true) {
            if (thread == 0) job->more = job->walk.next(p, job->piece);
            __syncthreads();
            if (!job->more) break;
            load_queries();
            attend();
            cp_async_wait<0>();
            write();
            __syncthreads();
        }
    }

    // Copies tile n and looks up the one after it.
    PB_FN void fetch(Keys& keys, int n, int to) const {
        keys.copy(p, thread, n * S::kKeys, job->piece.kv_len, stage(to));
        keys.look_up(p, thread, (n + 1) * S::kKeys, job->piece.kv_len, job->piece.first_page);
    }

    PB_FN void attend() {
        constexpr int kAhead = S::kStages > 1 ? S::kStages - 1 : 1;
        int n = job->piece.first * S::kRatio;
        const int end = min_i(job->piece.end * S::kRatio, (job->piece.kv_len + S::kKeys - 1) / S::kKeys);
        Keys keys;
        if (n < end) keys.look_up(p, thread, n * S::kKeys, job->piece.kv_len, job->piece.first_page);
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            if (n + i < end) fetch(keys, n + i, i);
            cp_async_commit();
        }
        // Up to which key all rows of this warp's scores see all.
        const Span span{job->piece.qo_len, job->piece.kv_len};
        const int seen = span.end(groups().of(min_i(first() + score_row, rows() - 1)), p.causal != 0);
        base[0] = base[1] = -kInf;
        sum[0] = sum[1] = 0.f;
#pragma unroll
        for (int m = 0; m < S::kPer; m++)
#pragma unroll
            for (int j = 0; j < kOut; j++) o[m][j][0] = o[m][j][1] = o[m][j][2] = o[m][j][3] = 0.f;
        int now = 0;
#pragma unroll 1
        for (; n < end; n++) {
            cp_async_wait<kAhead - 1>();
            __syncthreads();
            const int next = now == 0 ? S::kStages - 1 : now - 1;
            if (S::kStages > 1) {
                if (n + kAhead < end) fetch(keys, n + kAhead, next);
                cp_async_commit();
            }
            float s[kScores][4];
            if constexpr (S::kSplit == 1) score(s, stage(now) + part * S::kPart * Row::kBytes);
            else score_split(s, stage(now) + part * S::kPart * Row::kBytes);
            const int key = n * S::kKeys + part * S::kPart;
            if (key + S::kPart > seen) hide(s, key);
            weigh(s);
            add_values(stage(now) + Keys::lane_v(lane) + column * 2);
            if (S::kStages == 1) {
                __syncthreads();
                if (n + 1 < end) fetch(keys, n + 1, 0);
                cp_async_commit();
            }
            now = now + 1 == S::kStages ? 0 : now + 1;
        }
        // Sums of whole rows.
        __syncthreads();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h] += shfl_xor(sum[h], 1);
            sum[h] += shfl_xor(sum[h], 2);
            if (lane % 4 != 0) continue;
            parts[part * S::kRows + score_row + 8 * h + lane / 4] = sum[h];
            if (part == 0) bases[score_row + 8 * h + lane / 4] = base[h];
        }
        __syncthreads();
    }

    // Scores of 16 rows and kPart keys. Operands are loaded one use ahead.
    PB_FN void score(float (&s)[kScores][4], Shared keys) const {
        const Shared queries = smem + Row::at(score_row + (lane & 15), lane >> 4);
#pragma unroll
        for (int j = 0; j < kScores; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.f;
        if constexpr (kScores == 1) {
            // One chain of sums would wait for each product: there are two. A step is short: operands come three ahead.
            constexpr int kAhead = 4, kPairs = kAhead / 2 + 1;  // steps, pairs of steps
            const Shared from = keys + Keys::lane_k8(lane);
            float odd[4] = {0.f, 0.f, 0.f, 0.f};
            u32 a[kAhead][4], b[kPairs][4];
#pragma unroll
            for (int step = 1 - kAhead; step < kSteps; step++) {
                const int next = step + kAhead - 1;
                if (next < kSteps) {
                    if (next % 2 == 0) ldmatrix_x4<false>(b[next / 2 % kPairs], Row::step(from, 2 * next));
                    ldmatrix_x4<false>(a[next % kAhead], Row::step(queries, 2 * next));
                }
                if (step < 0) continue;
                const u32(&at)[4] = b[step / 2 % kPairs];
                mma_16816<T>(step % 2 ? odd : s[0], a[step % kAhead], at[step % 2 * 2], at[step % 2 * 2 + 1]);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) s[0][e] += odd[e];
        } else {
            constexpr int kPairs = kScores / 2;
            const Shared from = keys + Keys::lane_k16(lane);
            u32 a[2][4], b[2][kPairs][4];
            ldmatrix_x4<false>(a[0], queries);
#pragma unroll
            for (int j = 0; j < kPairs; j++) ldmatrix_x4<false>(b[0][j], from + 16 * j * Row::kBytes);
#pragma unroll
            for (int step = 0; step < kSteps; step++) {
                if (step + 1 < kSteps) {
                    ldmatrix_x4<false>(a[(step + 1) % 2], Row::step(queries, 2 * (step + 1)));
#pragma unroll
                    for (int j = 0; j < kPairs; j++)
                        ldmatrix_x4<false>(b[(step + 1) % 2][j], Row::step(from, 2 * (step + 1)) + 16 * j * Row::kBytes);
                }
#pragma unroll
                for (int j = 0; j < kPairs; j++) {
                    mma_16816<T>(s[2 * j], a[step % 2], b[step % 2][j][0], b[step % 2][j][1]);
                    mma_16816<T>(s[2 * j + 1], a[step % 2], b[step % 2][j][2], b[step % 2][j][3]);
                }
            }
        }
    }
    // The same by two warps: each takes 32 rows and half of the elements, 32 of each 64, so that operands serve twice. They
    // add up 16 rows each.
    PB_FN void score_split(float (&s)[kScores][4], Shared keys) const {
        constexpr int kPairs = kScores / 2, kHalf = kSteps / 2;
        float other[kScores][4];
#pragma unroll
        for (int j = 0; j < kScores; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[j][e] = other[j][e] = 0.f;
        const Shared mine = smem + Row::at(score_row + (lane & 15), (lane >> 4) + 4 * side);
        const Shared theirs = smem + Row::at((score_row ^ 16) + (lane & 15), (lane >> 4) + 4 * side);
        const Shared from = keys + Row::at((lane >> 4 << 3) + (lane & 7), (lane >> 3 & 1) + 4 * side);
        u32 a[2][2][4], b[2][kPairs][4];
        ldmatrix_x4<false>(a[0][0], mine);
        ldmatrix_x4<false>(a[0][1], theirs);
#pragma unroll
        for (int j = 0; j < kPairs; j++) ldmatrix_x4<false>(b[0][j], from + 16 * j * Row::kBytes);
#pragma unroll
        for (int step = 0; step < kHalf; step++) {
            const int next = step + 1, chunk = next / 2 * 8 + next % 2 * 2;
            if (next < kHalf) {
                ldmatrix_x4<false>(a[next % 2][0], Row::step(mine, chunk));
                ldmatrix_x4<false>(a[next % 2][1], Row::step(theirs, chunk));
#pragma unroll
                for (int j = 0; j < kPairs; j++) ldmatrix_x4<false>(b[next % 2][j], Row::step(from, chunk) + 16 * j * Row::kBytes);
            }
#pragma unroll
            for (int j = 0; j < kPairs; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    mma_16816<T>(s[2 * j + e], a[step % 2][0], b[step % 2][j][2 * e], b[step % 2][j][2 * e + 1]);
                    mma_16816<T>(other[2 * j + e], a[step % 2][1], b[step % 2][j][2 * e], b[step % 2][j][2 * e + 1]);
                }
        }
        // Where a warp's weights will be there is room for half of what it gives away: the rest goes where it found the
        // partner's first half.
        constexpr int kFirst = kScores / 2;
#pragma unroll
        for (int j = 0; j < kFirst; j++) *room(score_row, j) = {{other[j][0], other[j][1], other[j][2], other[j][3]}};
        pair();
#pragma unroll
        for (int j = 0; j < kFirst; j++) {
            add(s[j], *room(score_row ^ 16, j));
            *room(score_row ^ 16, j) = {{other[kFirst + j][0], other[kFirst + j][1], other[kFirst + j][2], other[kFirst + j][3]}};
        }
        pair();
#pragma unroll
        for (int j = 0; j < kFirst; j++) add(s[kFirst + j], *room(score_row, j));
        __syncwarp();
    }
    struct alignas(16) Quad {
        float x[4];
    };
    // Of the weights of 16 rows and this part of the keys, one chunk for each lane, so that eight lanes take all banks.
    PB_FN Quad* room(int from_row, int j) const {
        constexpr int kLines = 32 / kScores;  // rows that the lanes take at once
        const int line = kScores == 4 ? lane / 8 + lane / 4 % 2 * 4 : lane / 2;
        return (Quad*)(weights + S::Weights::at(from_row + line + kLines * j, part * kScores + lane % kScores));
    }
    PB_FN void pair() const { bar_sync(1 + S::kGroups + warp / 2, 64); }
    static PB_FN void add(float (&s)[4], const Quad& q) {
        const Quad x = q;
#pragma unroll
        for (int e = 0; e < 4; e++) s[e] += x.x[e];
    }
    // Scores of keys that a row does not see become -inf.
    PB_FN void hide(float (&s)[kScores][4], int key) const {
        const Span span{job->piece.qo_len, job->piece.kv_len};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = groups().of(min_i(first() + score_row + 8 * h + lane / 4, rows() - 1));
            const int end = span.end(i, p.causal != 0) - key - lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < kScores; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (8 * j + e >= end) s[j][2 * h + e] = -kInf;
        }
    }
    // Leaves 2^(scores - base) for all of the group, and adds them up. A base is a maximum that was; as long as no score
    // is far above it, nobody has to agree on another.
    PB_FN void weigh(const float (&s)[kScores][4]) {
        constexpr float kFar = 8.f;
        float add[2];
        put(s, add);
        bool far = false;
#pragma unroll
        for (int h = 0; h < 2; h++) far |= highest(s, h) * p.scale_log2 > base[h] + kFar;
        far = warp_ballot(far) != 0;
        if (lane == 0) job->far[warp] = far;
        meet();
        u32 any = 0;
#pragma unroll
        for (int i = 0; i < S::kOf; i += 4) any |= *(const u32*)(job->far + group * S::kOf + i);
        if (any) {
            rebase(s, add);
        } else {
            sum[0] += add[0];
            sum[1] += add[1];
        }
    }
    PB_FN float highest(const float (&s)[kScores][4], int h) const {
        float m = -kInf;
#pragma unroll
        for (int j = 0; j < kScores; j++) m = max_f(m, max_f(s[j][2 * h], s[j][2 * h + 1]));
        return m;
    }
    PB_FN void put(const float (&s)[kScores][4], float (&add)[2]) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            // A row that has seen no key yet: exponents are -inf, not NaN.
            const float from = base[h] == -kInf ? 0.f : base[h];
            add[h] = 0.f;
#pragma unroll
            for (int j = 0; j < kScores; j++) {
                const float x = exp2_fast(s[j][2 * h] * p.scale_log2 - from), y = exp2_fast(s[j][2 * h + 1] * p.scale_log2 - from);
                add[h] += x + y;
                u8* to = weights + S::Weights::at(score_row + lane / 4 + 8 * h, part * kScores + j) + lane % 4 * 4;
                *(u32*)to = convert<T>::pair(x, y);
            }
        }
    }
    // The warps that share rows agree on their bases; what there is already is rescaled.
    PB_FN void rebase(const float (&s)[kScores][4], float (&add)[2]) {
        const int at = score_row + lane / 4;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = highest(s, h);
            m = max_f(m, shfl_xor(m, 1));
            m = max_f(m, shfl_xor(m, 2));
            if (lane % 4 == 0) parts[part * S::kRows + at + 8 * h] = m;
        }
        meet();
        float change[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = -kInf;
#pragma unroll
            for (int d = 0; d < S::kDeep; d++) m = max_f(m, parts[d * S::kRows + at + 8 * h]);
            const float old = base[h];
            base[h] = max_f(old, m * p.scale_log2);
            change[h] = base[h] == -kInf ? 1.f : exp2_fast(old - base[h]);
            if (part == 0 && lane % 4 == 0) factors[at + 8 * h] = change[h];
        }
        put(s, add);
#pragma unroll
        for (int h = 0; h < 2; h++) sum[h] = sum[h] * change[h] + add[h];
        meet();
        rescale();
    }
    PB_FN void rescale() {
#pragma unroll
        for (int m = 0; m < S::kPer; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float change = factors[row + 16 * m + 8 * h + lane / 4];
#pragma unroll
                for (int j = 0; j < kOut; j++) {
                    o[m][j][2 * h] *= change;
                    o[m][j][2 * h + 1] *= change;
                }
            }
    }
    PB_FN void add_values(Shared values) {
        const Shared from = smem + S::kWeightsAt + S::Weights::at(row + (lane & 15), lane >> 4);
        constexpr int kAhead = S::kDepth, kPairs = kOut / 2, kAll = S::kKeys / 16 * kPairs;
        u32 a[2][S::kPer][4], b[kAhead][4];
#pragma unroll
        for (int i = 1 - kAhead; i < kAll; i++) {
            const int next = i + kAhead - 1, step = next / kPairs;
            if (next < kAll) {
                ldmatrix_x4<true>(b[next % kAhead], Row::step(values, 2 * (next % kPairs)) + 16 * step * Row::kBytes);
                if (next % kPairs == 0)
#pragma unroll
                    for (int m = 0; m < S::kPer; m++)
                        ldmatrix_x4<false>(a[step % 2][m], S::Weights::step(from, 2 * step) + 16 * m * S::Weights::kBytes);
            }
            if (i < 0) continue;
#pragma unroll
            for (int m = 0; m < S::kPer; m++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    mma_16816<T>(o[m][2 * (i % kPairs) + e], a[i / kPairs % 2][m], b[i % kAhead][2 * e], b[i % kAhead][2 * e + 1]);
        }
    }

    PB_FN void write() const {
        const Output out{p, job->piece, first(), rows()};
        const bool cut = job->piece.count > 1;
        float* const own = out.slot(job->piece.slot);
#pragma unroll
        for (int m = 0; m < S::kPer; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = row + 16 * m + 8 * h + lane / 4;
                if (out.first + at >= out.end) continue;
                float sum = 0.f;
#pragma unroll
                for (int d = 0; d < S::kDeep; d++) sum += parts[d * S::kRows + at];
                const float lse = sum == 0.f ? -kInf : bases[at] + log2f(sum);
                float scale = sum == 0.f ? 0.f : 1.f / sum;
                const bool mine = of_group == 0 && lane % 4 == 0;
                if (cut) {
                    float* to = own + at * Latent::kNope + column + lane % 4 * 2;
#pragma unroll
                    for (int j = 0; j < kOut; j++)
                        st<8>(to + 8 * j, {{bits_of<u32>(o[m][j][2 * h] * scale), bits_of<u32>(o[m][j][2 * h + 1] * scale)}});
                    if (mine) st<4>(own + S::kRows * Latent::kNope + at, {{bits_of<u32>(lse)}});
                } else if (u8* to = out.place(at, lse, scale, mine)) {
                    to += column * 2 + lane % 4 * 4;
#pragma unroll
                    for (int j = 0; j < kOut; j++)
                        st<4>(to + 16 * j, {{convert<T>::pair(o[m][j][2 * h] * scale, o[m][j][2 * h + 1] * scale)}});
                }
            }
        if (cut) out.merge(&job->before);
    }
};

template <class S> PB_FN void mla_attention(const pb_mla_attention_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(MlaJob, job, 1);
    MlaAttention<S>(p, job, smem).run();
}

}  // namespace pb
