// Choices sorted by expert. params.h is the contract.
#pragma once
#include "moe/moe_align/params.h"
#include "parbake/atomic.cuh"
#include "parbake/math.cuh"
#include "parbake/scan.cuh"
#include "parbake/vec.cuh"

namespace pb {

// Four choices that follow each other, as experts counted from the first one here; beyond the end none is.
PB_FN words<16> four_experts(const pb_moe_align_params& p, i64 at) {
    words<16> e = {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}};
    const i32* ids = (const i32*)p.ids + at;
    if (p.wide && at + 4 <= p.choices) {
        e = ld_nc<16>(ids);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i < p.choices) e.w[i] = ld_nc<4>(ids + i).w[0];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) e.w[i] = (i32)e.w[i] < p.first ? 0xffffffffu : e.w[i] - (u32)p.first;
    return e;
}

// A block counts all choices, which is a sum of integers and so the same in any order, and then takes some experts: it
// goes through the choices once more for each, in order.
template <int kBlock> PB_FN void moe_align(const pb_moe_align_params& p) {
    constexpr int kRound = 4 * kBlock;
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(u32, slots_a, 32);
    PB_SHARED_ARRAY(u32, slots_b, 32);
    u32* counts = (u32*)smem;
    i32 *rows = (i32*)p.rows, *places = (i32*)p.places;
    const int t = (int)threadIdx.x;
    for (int e = t; e < p.experts; e += kBlock) counts[e] = 0;
    __syncthreads();
#pragma unroll 1
    for (i64 from = 0; from < p.choices; from += kRound) {
        const i64 at = from + 4 * t;
        const words<16> e = four_experts(p, at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (e.w[i] < (u32)p.experts) atomic_add_relaxed(counts + e.w[i], 1);
            else if (blockIdx.x == 0 && at + i < p.choices) st<4>(places + at + i, {{0xffffffffu}});
        }
    }
    __syncthreads();
    const auto padded = [&](u32 n) { return (n + (u32)p.tile - 1) / (u32)p.tile * (u32)p.tile; };
    u32 total = 0;
#pragma unroll 1
    for (int own = (int)blockIdx.x; own < p.experts; own += (int)gridDim.x) {
        u32 before = 0, all = 0;
#pragma unroll 1
        for (int e = t; e < p.experts; e += kBlock) {
            const u32 n = padded(counts[e]);
            all += n;
            before += e < own ? n : 0u;
        }
        const u32 begin = block_reduce(before, add_op{}, 0u, slots_a);
        total = block_reduce(all, add_op{}, 0u, slots_b);
        const u32 count = counts[own], end = begin + count, stop = begin + padded(count);
        if (t == 0) {
            st<4>((i32*)p.indptr + own, {{begin}});
            if (own == p.experts - 1) st<4>((i32*)p.indptr + p.experts, {{total}});
        }
        for (u32 i = end + (u32)t; i < stop; i += kBlock) st<4>(rows + i, {{0xffffffffu}});
        const u32 tiles = p.tile_experts ? stop / (u32)p.tile : 0;
        for (u32 i = begin / (u32)p.tile + (u32)t; i < tiles; i += kBlock)
            st<4>((i32*)p.tile_experts + i, {{(u32)own}});
        // Two arrays in turn, so that the barrier of one scan guards the other; the last reduction guards the first.
        u32 at_place = begin;
        bool odd = false;
#pragma unroll 1
        for (i64 from = 0; at_place < end; from += kRound, odd = !odd) {
            const i64 at = from + 4 * t;
            const words<16> e = four_experts(p, at);
            u32 mine = 0, here;
#pragma unroll
            for (int i = 0; i < 4; i++) mine += e.w[i] == (u32)own;
            u32 place = at_place - mine + block_scan(mine, add_op{}, 0u, odd ? slots_b : slots_a, here);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (e.w[i] != (u32)own) continue;
                st<4>(rows + place, {{quotient((u32)(at + i), p.magic, p.shift)}});
                st<4>(places + at + i, {{place}});
                place++;
            }
            at_place += here;
        }
        __syncthreads();
    }
    // Behind the last expert. Every block has one, so that it knows where that is.
    const i64 step = (i64)gridDim.x * kBlock, mine = (i64)blockIdx.x * kBlock + t;
    for (i64 i = total + mine; i < p.capacity; i += step) st<4>(rows + i, {{0xffffffffu}});
    for (i64 i = total / (u32)p.tile + mine; i < p.tiles; i += step)
        st<4>((i32*)p.tile_experts + i, {{0xffffffffu}});
}

}  // namespace pb
