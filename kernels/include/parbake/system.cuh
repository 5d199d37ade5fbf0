// Words that several GPUs, or several launches at once, read and write: the scope is the whole system.
#pragma once
#include "parbake/types.cuh"

namespace pb {

// Publishes what this thread (and, after a barrier, its block) wrote.
PB_FN void st_release_sys(u64* a, u64 v) {
#if PB_DEVICE
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(a), "l"(v) : "memory");
#else
    host::step();
    __atomic_store_n(a, v, __ATOMIC_RELEASE);
#endif
}
// To wait on: on the host target the other threads and the other launches run meanwhile.
PB_FN u64 ld_acquire_sys(const u64* a) {
#if PB_DEVICE
    u64 r;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(r) : "l"(a) : "memory");
    return r;
#else
    host::wait();
    return __atomic_load_n(a, __ATOMIC_ACQUIRE);
#endif
}
// Nanoseconds since some moment.
PB_FN u64 clock_ns() {
#if PB_DEVICE
    u64 r;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(r)::"memory");
    return r;
#else
    return host::clock_ns();
#endif
}
// Ends the launch with an error, as whatever comes after it on this GPU: results that are wrong would be worse. `why` has a
// place for one number.
PB_FN void give_up(const char* why, int number PB_AT) {
#if PB_DEVICE
    (void)why, (void)number;
    asm volatile("trap;");
#else
    host::fail(at, why, number);
#endif
}

}  // namespace pb
