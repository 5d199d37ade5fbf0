// Rows of an item's output: where they lie, and how those of its pieces become one.
#pragma once
#include "attention/pieces.cuh"
#include "parbake/math.cuh"

namespace pb {

// kRows rows of kVo elements. A piece leaves them in `partial` as f32, each divided by its sum, and then their lse. P has
// o, lse, plan, partial, strides, and what a Divisor by `group` takes.
template <class P, class T, int kRows, int kVo, int kThreads> struct Rows {
    static constexpr int kQuads = kVo / 4;
    const P& p;
    const Piece& piece;
    int first_token, first, end;  // of the request; rows of this item, counted in the request

    PB_FN float* slot(i64 i) const { return (float*)p.partial + i * (kRows * (kVo + 1)); }
    PB_FN const float* part(int n) const { return slot(piece.begin + (i64)n * piece.step + (n == 0 ? piece.extra : 0)); }

    // Where a row's output goes, and its lse; nowhere if there is no such token.
    PB_FN u8* place(int row, float lse, bool mine) const {
        const int in_request = first + row, token = Divisor{p.group_multiply, p.group_shift}.of(in_request);
        const int head = piece.head * p.group + in_request - token * p.group;
        const i64 at = (i64)first_token + token;
        if (in_request >= end || at >= p.tokens) return nullptr;
        if (p.lse && mine) st<4>((u8*)p.lse + at * p.lse_stride + head * 4, {{bits_of<u32>(lse)}});
        return (u8*)p.o + at * p.o_stride + head * p.o_head_stride;
    }
    // The last piece to come puts all of them together. `before` is a word in shared memory.
    PB_FN void merge(u32* before) const {
        const int thread = (int)threadIdx.x;
        u32* const tickets = (u32*)p.plan + piece.ticket;
        __syncthreads();
        if (thread == 0) *before = ticket(tickets);
        __syncthreads();
        if (*before != (u32)piece.count - 1) return;
        if (thread == 0) st<4>(tickets, {{0}});  // for the next launch
#pragma unroll 1
        for (int i = thread; i < kRows * kQuads; i += kThreads) {
            const int row = i / kQuads, quad = i % kQuads;
            if (first + row >= end) break;
            float max = -kInf;
#pragma unroll 4
            for (int n = 0; n < piece.count; n++) max = max_f(max, bits_of<float>(ld<4>(part(n) + kRows * kVo + row).w[0]));
            float sum = 0.f, x[4] = {};
#pragma unroll 4
            for (int n = 0; n < piece.count; n++) {
                const float lse = bits_of<float>(ld<4>(part(n) + kRows * kVo + row).w[0]);
                const words<16> y = ld<16>(part(n) + row * kVo + 4 * quad);
                const float w = lse == -kInf ? 0.f : exp2_fast(lse - max);
                sum += w;
#pragma unroll
                for (int e = 0; e < 4; e++) x[e] += w * bits_of<float>(y.w[e]);
            }
            const float scale = sum == 0.f ? 0.f : 1.f / sum;
            u8* to = place(row, sum == 0.f ? -kInf : max + log2f(sum), quad == 0);
            if (to) st<8>(to + quad * 8, {{convert<T>::pair(x[0] * scale, x[1] * scale), convert<T>::pair(x[2] * scale, x[3] * scale)}});
        }
    }
};

}  // namespace pb
