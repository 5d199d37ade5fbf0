// Rows of an item's output: where they lie, and how those of its pieces become one.
#pragma once
#include "attention/pieces.cuh"
#include "attention/softmax.cuh"
#include "parbake/math.cuh"

namespace pb {

// All threads of a block.
struct WholeBlock {
    static PB_FN int thread() { return (int)threadIdx.x; }
    static PB_FN void sync() { __syncthreads(); }
};

// Whether parameters have `sinks`, and a factor of values.
template <class P> inline constexpr bool kHasSinks = false;

// kRows rows of kVo elements. A piece leaves them in `partial` as f32, each divided by its sum, and then their lse. P has
// o, lse, plan, partial, strides, and what a Divisor by `group` takes.
template <class P, class T, int kRows, int kVo, int kThreads, class Team = WholeBlock> struct Rows {
    static constexpr int kQuads = kVo / 4;
    const P& p;
    const Piece& piece;
    int first, end;  // rows of this item, counted in the request

    PB_FN float* slot(i64 i) const { return (float*)p.partial + i * (kRows * (kVo + 1)); }
    PB_FN const float* part(int n) const { return slot(piece.begin + (i64)n * piece.step + (n == 0 ? piece.extra : 0)); }

    // Where a row's output goes, and its lse; nowhere if there is no such token. `scale` is what remains to be multiplied.
    PB_FN u8* place(int row, float lse, float& scale, bool mine) const {
        const int in_request = first + row, token = Divisor{p.group_multiply, p.group_shift}.of(in_request);
        const int head = piece.head * p.group + in_request - token * p.group;
        const i64 at = (i64)piece.first_token + token;
        if (in_request >= end || at >= p.tokens) return nullptr;
        if constexpr (kHasSinks<P>) scale *= p.v_scale * sink(p.sinks, head, lse);
        if (p.lse && mine) st<4>((u8*)p.lse + at * p.lse_stride + head * 4, {{bits_of<u32>(lse)}});
        return (u8*)p.o + at * p.o_stride + head * p.o_head_stride;
    }
    // The last piece to come puts all of them together. `before` is a word in shared memory.
    PB_FN void merge(u32* before) const {
        const int thread = Team::thread();
        u32* const tickets = (u32*)p.plan + piece.ticket;
        Team::sync();
        if (thread == 0) *before = ticket(tickets);
        Team::sync();
        if (*before != (u32)piece.count - 1) return;
        if (thread == 0) st<4>(tickets, {{0}});  // for the next launch
        // A warp takes a row, and two pieces at a time: it waits once for all that it loads.
        constexpr int kOf = kQuads / 32;
        static_assert(kQuads % 32 == 0, "whole warps");
        const int lane = thread % 32;
#pragma unroll 1
        for (int row = thread / 32; row < kRows && first + row < end; row += kThreads / 32) {
            float max = -kInf, sum = 0.f, x[kOf][4] = {};
#pragma unroll 1
            for (int n = 0; n < piece.count; n += 2) {
                float lse[2];
                words<16> y[2][kOf];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float* from = part(min_i(n + i, piece.count - 1));
                    lse[i] = n + i < piece.count ? bits_of<float>(ld<4>(from + kRows * kVo + row).w[0]) : -kInf;
#pragma unroll
                    for (int j = 0; j < kOf; j++) y[i][j] = ld<16>(from + row * kVo + 4 * (lane + 32 * j));
                }
                const float now = max_f(max, max_f(lse[0], lse[1]));
                if (now == -kInf) continue;
                const float kept = exp2_fast(max - now), w[2] = {exp2_fast(lse[0] - now), exp2_fast(lse[1] - now)};
                max = now;
                sum = sum * kept + w[0] + w[1];
#pragma unroll
                for (int j = 0; j < kOf; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        x[j][e] = x[j][e] * kept + w[0] * bits_of<float>(y[0][j].w[e]) + w[1] * bits_of<float>(y[1][j].w[e]);
            }
            float scale = sum == 0.f ? 0.f : 1.f / sum;
            u8* to = place(row, sum == 0.f ? -kInf : max + log2f(sum), scale, lane == 0);
            if (!to) continue;
#pragma unroll
            for (int j = 0; j < kOf; j++)
                st<8>(to + 8 * (lane + 32 * j), {{convert<T>::pair(x[j][0] * scale, x[j][1] * scale), convert<T>::pair(x[j][2] * scale, x[j][3] * scale)}});
        }
    }
};

}  // namespace pb
