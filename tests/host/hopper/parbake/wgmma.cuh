// The products of parbake/wgmma.cuh on the host target: each thread computes the sums that it has, from operands as their
// descriptors say. That happens as late as the program allows, at the wait, so that a stage that is given back too early
// has other elements by then.
#pragma once
#include <map>
#include <vector>

#include "parbake/fp8.cuh"
#include "parbake/warp.cuh"

namespace pb {

inline int wgmma_gap(Shared from) {
    return (int)(-(__UINTPTR_TYPE__)from.at & 1023);
}
// Addresses count from a multiple of what a swizzle repeats in.
inline __UINTPTR_TYPE__ wgmma_base() {
    return (__UINTPTR_TYPE__)host::self().smem / 1024 * 1024;
}
inline u64 wgmma_operand_tall(Shared tile, u32 panel) {
    return (u64)1 << 62 | (u64)64 << 32 | (u64)(panel >> 4) << 16 | (((__UINTPTR_TYPE__)tile.at - wgmma_base()) >> 4 & 0x3fff);
}
inline u64 wgmma_operand(Shared tile) {
    return wgmma_operand_tall(tile, 16);
}
inline u64 wgmma_step(u64 operand, int bytes) {
    return operand + (u64)(bytes >> 4);
}

// One product of 32 bytes along k.
struct WgmmaWork {
    float* d;
    int sums, bytes;
    bool f16, add, tall, held;
    u64 a, b, group;
    u32 words[4][4];  // of `a` in registers: those of the four lanes that share rows

    // Element `k` of row `at`, a row of the other dimension for tall operands.
    float element(u64 operand, bool lies_tall, int at, int k) const {
        const auto field = [&](int bit) { return (__UINTPTR_TYPE__)(operand >> bit & 0x3fff) * 16; };
        __UINTPTR_TYPE__ place = wgmma_base() + field(0);
        if (lies_tall) place += at / 64 * field(16) + k / 8 * field(32) + k % 8 * 128 + at % 64 * bytes;
        else place += at / 8 * field(32) + at % 8 * 128 + k * bytes;
        place ^= place / 128 % 8 * 16;
        if (!host::in_shared((void*)place, bytes)) __builtin_trap();
        return value((const u8*)place);
    }
    float value(const u8* from) const {
        if (bytes == 1) return to_f32(e4m3{*from});
        u16 bits;
        __builtin_memcpy(&bits, from, 2);
        return f16 ? to_f32(pb::f16{bits}) : to_f32(bf16{bits});
    }
    float left(int row, int k) const {
        if (!held) return element(a, false, row, k);
        return value((const u8*)&words[k % 8 / 2][row / 8 % 2 + k / 8 * 2] + k % 2 * 2);
    }
    void run() const {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32;
        for (int i = 0; i < sums; i++) {
            const int row = 16 * warp + 8 * (i / 2 % 2) + lane / 4, column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            float sum = add ? d[i] : 0.f;
            for (int k = 0; k < 32 / bytes; k++) sum += left(row, k) * element(b, tall, column, k);
            d[i] = sum;
        }
    }
};
struct WgmmaQueue {
    std::vector<WgmmaWork> work;
    u64 group = 0;
};
// That of this thread.
inline WgmmaQueue& wgmma_queue() {
    static thread_local std::map<const void*, WgmmaQueue> queues;
    return queues[&host::self()];
}

inline void wgmma_fence() {}
inline void wgmma_commit() {
    wgmma_queue().group++;
}
template <int kGroups> void wgmma_wait() {
    host::preempt();
    WgmmaQueue& queue = wgmma_queue();
    std::vector<WgmmaWork> left;
    for (const WgmmaWork& work : queue.work)
        if (work.group + kGroups < queue.group) work.run();
        else left.push_back(work);
    queue.work.swap(left);
}
template <int kCount> void wgmma_hold(float (&)[kCount][4]) {}

template <int kThreads, int kLoading, int kFewer, int kMore> constexpr bool registers_suffice() {
    return kLoading * kFewer + (kThreads - kLoading) * kMore <= 65536 / kThreads / 8 * 8 * kThreads;
}
template <int kCount> void registers_more() {}
template <int kCount> void registers_fewer() {}

template <class T, int kColumns, bool kTallA = false, bool kTallB = false> struct Wgmma {
    static_assert(!kTallA, "no kernel has one");
    template <bool kAdd> static void of(float (&d)[kColumns / 8][4], u64 a, u64 b) {
        WgmmaQueue& queue = wgmma_queue();
        queue.work.push_back({&d[0][0], kColumns / 2, (int)sizeof(T), !is_bf16<T>, kAdd, kTallB, false, a, b, queue.group, {}});
    }
    template <bool kAdd> static void of(float (&d)[kColumns / 8][4], const u32 (&a)[4], u64 b) {
        of<kAdd>(d, 0, b);
        WgmmaWork& work = wgmma_queue().work.back();
        work.held = true;
        for (int lane = 0; lane < 4; lane++)
            for (int i = 0; i < 4; i++) work.words[lane][i] = shfl(a[i], (int)lane_id() / 4 * 4 + lane);
    }
};

}  // namespace pb
