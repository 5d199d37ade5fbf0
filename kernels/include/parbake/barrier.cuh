// Barriers between threads of a block, and of a whole grid.
#pragma once
#include "parbake/atomic.cuh"

namespace pb {

// Named barriers 1..15; n counts threads, those that wait and those that only arrive, and is a multiple of 32.
PB_FN void bar_sync(int id, int n PB_AT) {
#if PB_DEVICE
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
#else
    host::bar(id, n, true PB_PASS_AT);
#endif
}
PB_FN void bar_arrive(int id, int n PB_AT) {
#if PB_DEVICE
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
#else
    host::bar(id, n, false PB_PASS_AT);
#endif
}

// All blocks of a cooperative launch. `bar` is one zeroed word in global memory; `n` counts the barriers passed so far.
PB_FN void grid_sync(u32* bar, u32& n PB_AT) {
    __syncthreads();
    n++;
    if (threadIdx.x == 0) {
        ticket(bar);
        while (ld_acquire(bar PB_PASS_AT) < n * gridDim.x) {
        }
    }
    __syncthreads();
}

}  // namespace pb
