// Atomics in global memory. The order is part of the name; a bare fence is not offered, race detectors cannot model it.
#pragma once
#include "parbake/types.cuh"

namespace pb {

PB_FN u32 atomic_add_relaxed(u32* a, u32 v) {
#if PB_DEVICE
    return atomicAdd(a, v);
#else
    host::step();
    return __atomic_fetch_add(a, v, __ATOMIC_RELAXED);
#endif
}
PB_FN void atomic_add_relaxed(float* a, float v) {
#if PB_DEVICE
    atomicAdd(a, v);
#else
    host::step();
    u32 old = __atomic_load_n((u32*)a, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n((u32*)a, &old, bits_of<u32>(bits_of<float>(old) + v), false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
#endif
}
// "I am done; how many were before me?" Publishes what this thread (and, after a barrier, its block) wrote.
PB_FN u32 ticket(u32* a, u32 v = 1) {
#if PB_DEVICE
    u32 r;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(r) : "l"(a), "r"(v) : "memory");
    return r;
#else
    host::step();
    return __atomic_fetch_add(a, v, __ATOMIC_ACQ_REL);
#endif
}
// The only thing to spin on: on the host target it lets the other threads run.
PB_FN u32 ld_acquire(const u32* a PB_AT) {
#if PB_DEVICE
    u32 r;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(a) : "memory");
    return r;
#else
    host::spin(at);
    return __atomic_load_n(a, __ATOMIC_ACQUIRE);
#endif
}
PB_FN void st_release(u32* a, u32 v) {
#if PB_DEVICE
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(a), "r"(v) : "memory");
#else
    host::step();
    __atomic_store_n(a, v, __ATOMIC_RELEASE);
#endif
}

}  // namespace pb
