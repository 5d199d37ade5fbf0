// Barriers in shared memory that count arrivals and bytes (mbarrier, sm_90). Device code only: the host target has no
// kernel that needs them, and its tests have headers of this name of their own (PB_EMULATED).
//
// A barrier is in phase 0 when it is new. `mbar_wait` of a parity returns when the phase of that parity is over, so that
// a wait for parity 1 returns at once from a new barrier: who fills buffers waits for 1 first, who reads them for 0.
#pragma once
#include "parbake/cluster.cuh"

#if PB_DEVICE
namespace pb {

// So many arrivals end a phase. One thread does it for all; `mbar_init_fence` and a barrier of the block come after it.
PB_FN void mbar_init(Shared bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar.at), "r"(arrivals) : "memory");
}
PB_FN void mbar_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
PB_FN void mbar_arrive(Shared bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar.at) : "memory");
}
// A copy (cp.async) of 4 bytes; valid == false writes zeros and reads nothing.
PB_FN void cp_async4(Shared smem, const void* gmem, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem.at), "l"(gmem), "r"(valid ? 4 : 0) : "memory");
}
// Arrives when the copies (cp.async) that this thread has begun are done. `mbar_init` counts it like any other.
PB_FN void mbar_arrive_copied(Shared bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar.at) : "memory");
}
// Arrives, and says how many bytes the phase waits for besides.
PB_FN void mbar_arrive_expect(Shared bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar.at), "r"(bytes) : "memory");
}
// Arrives at the barrier that lies in block `rank` of the cluster where `bar` lies here.
PB_FN void mbar_arrive_at(Shared bar, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(bar.at), "r"(rank));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}
PB_FN void mbar_wait(Shared bar, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}" ::"r"(bar.at),
        "r"(parity)
        : "memory");
}

// Whether `mbar_wait` would return at once.
PB_FN bool mbar_test(Shared bar, u32 parity) {
    u32 over;
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(bar.at), "r"(parity)
        : "memory");
    return over != 0;
}

// Where one is in a ring of kStages buffers, and in which of its rounds.
template <int kStages> struct Ring {
    u32 at = 0, phase = 0;
    PB_FN void next() {
        if (++at == kStages) at = 0, phase ^= 1;
    }
};

}  // namespace pb
#endif
