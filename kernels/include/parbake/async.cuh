// Asynchronous copies from global to shared memory (cp.async, sm_80).
#pragma once
#include "parbake/types.cuh"

namespace pb {

// 16 bytes; valid == false writes zeros and reads nothing.
PB_FN void cp_async16(Shared smem, const void* gmem, bool valid = true PB_AT) {
#if PB_DEVICE
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem.at),
                 "l"(gmem), "r"(valid ? 16 : 0)
                 : "memory");
#else
    host::cp_async16(smem.at, gmem, valid PB_PASS_AT);
#endif
}
// The line of 128 bytes will be in L2 when it is read.
PB_FN void prefetch_l2(const void* gmem) {
#if PB_DEVICE
    asm volatile("prefetch.global.L2 [%0];" ::"l"(gmem));
#else
    (void)gmem;
#endif
}
PB_FN void cp_async_commit() {
#if PB_DEVICE
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    host::cp_async_commit();
#endif
}
// At most N of this thread's groups stay in flight. Other threads' copies need a barrier after it.
template <int N> PB_FN void cp_async_wait() {
#if PB_DEVICE
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#else
    host::cp_async_wait(N);
#endif
}

}  // namespace pb
