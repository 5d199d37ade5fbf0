// Softmax of rows. params.h is the contract.
//
// A row is taken by one block or by a cluster, and stays in registers: memory is read once. What is too long for that
// is read again.
#pragma once
#include "sampling/exp.cuh"
#include "parbake/cluster.cuh"
#include "parbake/scan.cuh"
#include "parbake/vec.cuh"
#include "sampling/softmax/params.h"

namespace pb {

// A part of a row: its maximum, and the sum of exp((x - maximum) / temperature).
struct Part {
    float top, sum;
};

// Whatever x - top comes to where top is no number that can be subtracted: 0 for -inf, so that such entries add nothing.
PB_FN float base_of(float top) {
    return top == -kInf ? 0.f : top;
}
PB_FN Part joined(Part a, Part b, float scale) {
    const float top = max_op{}(a.top, b.top), base = base_of(top);
    return {top, a.sum * exp_of((a.top - base) * scale) + b.sum * exp_of((b.top - base) * scale)};
}

// Values of a row that a thread holds. CUDA 12.9 needs more registers from sm_100 on: 64 were too few, and it spilled.
#if PB_DEVICE && __CUDA_ARCH__ >= 1000
template <class T> inline constexpr int kMostValues = sizeof(T) == 4 ? 24 : 32;
#else
template <class T> inline constexpr int kMostValues = 32;
#endif

template <class T, int kBlocks, int kVec>
PB_FN void softmax(const pb_softmax_params& p) {
    constexpr int kLane = kLanes<T, kVec>, kStore = kLane < 4 ? 4 : 16;
    constexpr int kHeld = kVec == 16 ? kMostValues<T> / kLane : 8;
    constexpr u64 kNoColumn = ~0ull;
    PB_SHARED_ARRAY(u64, slots, kBlocks * 32);
    PB_SHARED_ARRAY(u64, columns, kBlocks * 32);
    if constexpr (kBlocks > 1) cluster_arrive();
    const i64 row = (i64)(blockIdx.x / kBlocks);
    const T* x = (const T*)p.logits + row * p.logits_stride;
    float* out = (float*)p.probs + row * p.probs_stride;
    const int rank = kBlocks == 1 ? 0 : (int)cluster_rank(), warps = (int)(blockDim.x / 32);
    const int begin = (rank * (int)blockDim.x + (int)threadIdx.x) * kLane, step = kBlocks * (int)blockDim.x * kLane;

    float v[kHeld][kLane];
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = begin + i * step;
        if (c < p.vocab) {
            unpack<T, kVec>(ld_once<kVec>(x + c), v[i]);
        } else {
#pragma unroll
            for (int j = 0; j < kLane; j++) v[i][j] = -kInf;
        }
    }
    const float temperature = p.temperatures ? ((const float*)p.temperatures)[row] : p.temperature;
    const float inverse = 1.f / temperature;
    const bool greedy = temperature <= 0.f || inverse == kInf;
    // At least 1e-38, so that -inf times it is -inf.
    const float scale = greedy ? 1.f : inverse < 1e-38f ? 1e-38f : inverse;

    Part part{-kInf, 0.f};
#pragma unroll
    for (int i = 0; i < kHeld; i++)
#pragma unroll
        for (int j = 0; j < kLane; j++) part.top = max_op{}(part.top, v[i][j]);
    const float own = base_of(part.top);
    if (!greedy) {
#pragma unroll
        for (int i = 0; i < kHeld; i++)
#pragma unroll
            for (int j = 0; j < kLane; j++) {
                v[i][j] = exp_of((v[i][j] - own) * scale);
                part.sum += v[i][j];
            }
    }
#pragma unroll 1
    for (int c = begin + kHeld * step; c < p.vocab; c += step) {
        float w[kLane];
        unpack<T, kVec>(ld<kVec>(x + c), w);
#pragma unroll
        for (int j = 0; j < kLane; j++) part = joined(part, {w[j], 1.f}, scale);
    }

    // The whole row, in the same order in every thread.
#pragma unroll
    for (int m = 16; m; m >>= 1) part = joined(part, {shfl_xor(part.top, m), shfl_xor(part.sum, m)}, scale);
    if constexpr (kBlocks > 1) cluster_wait();
    const int slot = rank * warps + (int)warp_id();
    const auto publish = [&](u64* to, u64 value) {
        if constexpr (kBlocks == 1) {
            if (lane_id() == 0) to[slot] = value;
            __syncthreads();
        } else {
            if (lane_id() < kBlocks) cluster_st(to + slot, lane_id(), value);
            cluster_sync();
        }
    };
    publish(slots, (u64)bits_of<u32>(part.sum) << 32 | bits_of<u32>(part.top));
    Part all{-kInf, 0.f};
#pragma unroll 1
    for (int i = (int)lane_id(); i < kBlocks * warps; i += 32)
        all = joined(all, {bits_of<float>((u32)slots[i]), bits_of<float>((u32)(slots[i] >> 32))}, scale);
#pragma unroll
    for (int m = 16; m; m >>= 1) all = joined(all, {shfl_xor(all.top, m), shfl_xor(all.sum, m)}, scale);

    if (greedy) {
        u64 first = kNoColumn;
#pragma unroll 1
        for (int c = begin; c < p.vocab; c += step) {
            float w[kLane];
            unpack<T, kVec>(ld<kVec>(x + c), w);
#pragma unroll
            for (int j = kLane - 1; j >= 0; j--)
                if (w[j] == all.top && w[j] != -kInf && first == kNoColumn) first = (u64)(c + j);
        }
        publish(columns, warp_reduce(first, min_op{}));
        first = kNoColumn;
#pragma unroll 1
        for (int i = (int)lane_id(); i < kBlocks * warps; i += 32) first = min_op{}(first, columns[i]);
        first = warp_reduce(first, min_op{});
        const float zero = all.top != all.top ? all.top : 0.f;
#pragma unroll 1
        for (int c = begin; c < p.vocab; c += step)
#pragma unroll
            for (int j = 0; j < kLane; j++) out[c + j] = (u64)(c + j) == first ? 1.f : zero;
        return;
    }

    const float base = base_of(all.top), share = all.sum == 0.f ? 0.f : 1.f / all.sum;
    const float factor = exp_of((own - base) * scale) * share;
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
        const int c = begin + i * step;
        if (c >= p.vocab) break;
#pragma unroll
        for (int j = 0; j < kLane; j += kStore / 4) {
            float w[kStore / 4];
#pragma unroll
            for (int l = 0; l < kStore / 4; l++) w[l] = v[i][j + l] * factor;
            st_once<kStore>(out + c + j, pack<float, kStore>(w));
        }
    }
#pragma unroll 1
    for (int c = begin + kHeld * step; c < p.vocab; c += step) {
        float w[kLane];
        unpack<T, kVec>(ld<kVec>(x + c), w);
#pragma unroll
        for (int j = 0; j < kLane; j++) st_once<4>(out + c + j, pack<float, 4>({exp_of((w[j] - base) * scale) * share}));
    }
}

}  // namespace pb
