// A flash attention that covers ldmatrix, mma and cp.async on the host target; not a kernel of the library.
// One block of kWarps warps takes 16 * kWarps query rows of one head; K and V tiles of kKv rows
// come by cp.async into two buffers. grid = (ceil(sq / (16 * kWarps)), q_heads, batch).
#pragma once
#include "attention/params.h"
#include "parbake/async.cuh"
#include "parbake/math.cuh"
#include "parbake/mma.cuh"
#include "parbake/vec.cuh"
#include "parbake/warp.cuh"

namespace pb {
template <int D, int kKv, int kWarps> struct AttentionTile {
    static constexpr int kRows = 16 * kWarps, kThreads = 32 * kWarps, kChunks = D / 8;
    static constexpr int kQBytes = kRows * D * 2, kKvBytes = kKv * D * 2, kBytes = kQBytes + 4 * kKvBytes;
    // 16-byte chunk c of row r; chunks are rotated so that 8 rows of one column hit 8 different banks groups
    static PB_FN int at(int r, int c) { return r * D * 2 + ((c & ~7) | ((c ^ r) & 7)) * 16; }
};
template <int D, int kThreads>
PB_FN void copy_tile(unsigned char* dst, const void* src, i64 stride, int rows, int valid) {
    constexpr int kChunks = D / 8;
    for (int i = (int)threadIdx.x; i < rows * kChunks; i += kThreads) {
        const int r = i / kChunks, c = i % kChunks;
        const bool ok = r < valid;
        cp_async16(dst + AttentionTile<D, 16, 1>::at(r, c), (const u16*)src + (ok ? r : 0) * stride + c * 8, ok);
    }
}
template <class T, int D, int kKv, int kWarps, bool kCausal> PB_FN void attention(const pb_attention_params& p) {
    using Tile = AttentionTile<D, kKv, kWarps>;
    static_assert(D % 64 == 0 && kKv % 16 == 0, "tile");
    PB_DYN_SMEM(smem);
    const int q0 = (int)blockIdx.x * Tile::kRows, lane = (int)lane_id(), g = lane / 4, t = lane % 4;
    const i64 batch = blockIdx.z, head = blockIdx.y, kv_head = head / (p.q_heads / p.kv_heads);
    if (q0 >= p.sq) return;
    const u16* q = (const u16*)p.q + batch * p.q_batch + head * p.q_head + q0 * p.q_row;
    const u16* k = (const u16*)p.k + batch * p.kv_batch + kv_head * p.kv_head;
    const u16* v = (const u16*)p.v + batch * p.kv_batch + kv_head * p.kv_head;
    unsigned char* sq = smem;
    auto sk = [&](int b) { return smem + Tile::kQBytes + b * Tile::kKvBytes; };
    auto sv = [&](int b) { return smem + Tile::kQBytes + (2 + b) * Tile::kKvBytes; };

    const int shift = p.skv - p.sq;  // causal: query i sees keys up to i + shift
    const int end = kCausal ? min_i(p.skv, q0 + Tile::kRows + shift) : p.skv;
    const int tiles = (end + kKv - 1) / kKv;
    copy_tile<D, Tile::kThreads>(sq, q, p.q_row, Tile::kRows, p.sq - q0);
    if (tiles > 0) {
        copy_tile<D, Tile::kThreads>(sk(0), k, p.kv_row, kKv, p.skv);
        copy_tile<D, Tile::kThreads>(sv(0), v, p.kv_row, kKv, p.skv);
    }
    cp_async_commit();

    float o[D / 8][4] = {}, m[2] = {-kInf, -kInf}, l[2] = {0.f, 0.f};
    u32 qf[D / 16][4];
    const int r0 = (int)warp_id() * 16;
    for (int n = 0; n < tiles; n++) {
        const int buf = n & 1;
        if (n + 1 < tiles) {
            const int at = (n + 1) * kKv;
            copy_tile<D, Tile::kThreads>(sk(buf ^ 1), k + at * p.kv_row, p.kv_row, kKv, p.skv - at);
            copy_tile<D, Tile::kThreads>(sv(buf ^ 1), v + at * p.kv_row, p.kv_row, kKv, p.skv - at);
            cp_async_commit();
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();  // everybody's part of tile n has landed
        if (n == 0) {
#pragma unroll
            for (int d = 0; d < D / 16; d++)
                ldmatrix_x4<false>(qf[d], sq + Tile::at(r0 + lane % 16, 2 * d + lane / 16));
        }
        float s[kKv / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; d++)
#pragma unroll
            for (int j = 0; j < kKv / 16; j++) {
                u32 b[4];
                ldmatrix_x4<false>(b, sk(buf) + Tile::at(16 * j + lane / 16 * 8 + lane % 8, 2 * d + lane / 8 % 2));
                mma_16816<T>(s[2 * j], qf[d], b[0], b[1]);
                mma_16816<T>(s[2 * j + 1], qf[d], b[2], b[3]);
            }
        // scores: s[j][0..1] row g, s[j][2..3] row g + 8, columns 8 j + 2 t + {0, 1}
        const int kv0 = n * kKv, row = q0 + r0 + g;
        if (kv0 + kKv > p.skv || (kCausal && kv0 + kKv > q0 + r0 + 1 + shift)) {
#pragma unroll
            for (int j = 0; j < kKv / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int c = kv0 + 8 * j + 2 * t + (e & 1), r = row + (e & 2) * 4;
                    if (c >= p.skv || (kCausal && c > r + shift)) s[j][e] = -kInf;
                }
        }
        float scale[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float mx = m[h];
#pragma unroll
            for (int j = 0; j < kKv / 8; j++) mx = max_f(mx, max_f(s[j][2 * h], s[j][2 * h + 1]));
            mx = max_f(mx, shfl_xor(mx, 1));
            mx = max_f(mx, shfl_xor(mx, 2));
            const float base = mx == -kInf ? 0.f : mx * p.scale_log2;
            scale[h] = exp2_fast(m[h] * p.scale_log2 - base);
            m[h] = mx;
            float sum = 0.f;
#pragma unroll
            for (int j = 0; j < kKv / 8; j++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) sum += s[j][e] = exp2_fast(s[j][e] * p.scale_log2 - base);
            l[h] = l[h] * scale[h] + sum;
        }
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            o[d][0] *= scale[0];
            o[d][1] *= scale[0];
            o[d][2] *= scale[1];
            o[d][3] *= scale[1];
        }
#pragma unroll
        for (int j = 0; j < kKv / 16; j++) {
            const u32 a[4] = {convert<T>::pair(s[2 * j][0], s[2 * j][1]), convert<T>::pair(s[2 * j][2], s[2 * j][3]),
                              convert<T>::pair(s[2 * j + 1][0], s[2 * j + 1][1]),
                              convert<T>::pair(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                u32 b[4];
                ldmatrix_x4<true>(b, sv(buf) + Tile::at(16 * j + lane % 16, 2 * d + lane / 16));
                mma_16816<T>(o[2 * d], a, b[0], b[1]);
                mma_16816<T>(o[2 * d + 1], a, b[2], b[3]);
            }
        }
        __syncthreads();  // nobody reads tile n any more: its buffer may be filled again
    }
    if (tiles <= 0) {
        cp_async_wait<0>();
        __syncthreads();
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        l[h] += shfl_xor(l[h], 1);
        l[h] += shfl_xor(l[h], 2);
        const int r = q0 + r0 + g + 8 * h;
        if (r >= p.sq) continue;
        const float inv = l[h] > 0.f ? 1.f / l[h] : 0.f;
        u16* out = (u16*)p.o + batch * p.o_batch + head * p.o_head + r * p.o_row + 2 * t;
#pragma unroll
        for (int d = 0; d < D / 8; d++)
            st<4>(out + 8 * d, {{convert<T>::pair(o[d][2 * h] * inv, o[d][2 * h + 1] * inv)}});
        if (p.lse && t == 0)
            p.lse[(batch * p.q_heads + head) * p.sq + r] =
                l[h] > 0.f ? (m[h] * p.scale_log2 + log2f(l[h])) * 0.6931471805599453f : -kInf;
    }
}
}  // namespace pb
