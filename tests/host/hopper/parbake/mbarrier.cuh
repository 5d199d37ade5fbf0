// Barriers that count arrivals and bytes, as parbake/mbarrier.cuh has them, for the host target: fibers share them, so
// that nothing is atomic. A barrier has the eight bytes that it has on a GPU.
#pragma once
#include "parbake/cluster.cuh"
#include "parbake/async.cuh"

namespace pb {

struct Mbarrier {
    u32 pending : 16, arrivals : 16;
    i32 bytes : 31;
    u32 phase : 1;
    void count(i32 more) {
        bytes = bytes + more;
        if (pending != 0 || bytes != 0) return;
        phase ^= 1;
        pending = arrivals;
    }
};
static_assert(sizeof(Mbarrier) == 8, "as on a GPU");

inline Mbarrier& mbarrier(Shared bar, host::Site at) {
    host::check_access(bar.at, 8, "mbarrier", at);
    if (!host::in_shared(bar.at, 8)) host::fail(at, "mbarrier %p is outside shared memory", (void*)bar.at);
    return *(Mbarrier*)bar.at;
}
inline void mbar_init(Shared bar, u32 arrivals PB_AT) {
    mbarrier(bar, at) = {arrivals, arrivals, 0, 0};
}
inline void mbar_init_fence() {}
inline void mbar_arrive_expect(Shared bar, u32 bytes PB_AT) {
    host::step();
    Mbarrier& b = mbarrier(bar, at);
    if (b.pending == 0) host::fail(at, "more arrivals in a phase than the barrier was made for");
    b.pending--;
    b.count((i32)bytes);
}
inline void mbar_arrive(Shared bar PB_AT) {
    mbar_arrive_expect(bar, 0, at);
}
// Lands at once: whoever reads it waits for more than that.
inline void cp_async4(Shared smem, const void* gmem, bool valid PB_AT) {
    host::check_access(smem.at, 4, "cp.async destination", at);
    if (!host::in_shared(smem.at, 4)) host::fail(at, "cp.async destination %p is outside shared memory", (void*)smem.at);
    *(host::word_t*)smem.at = valid ? *(const host::word_t*)gmem : 0u;
}
inline void mbar_arrive_copied(Shared bar PB_AT) {
    host::cp_async_commit();
    host::cp_async_wait(0);
    mbar_arrive(bar, at);
}
inline bool mbar_test(Shared bar, u32 parity PB_AT) {
    return mbarrier(bar, at).phase != parity;
}
inline void mbar_wait(Shared bar, u32 parity PB_AT) {
    host::preempt();
    while (!mbar_test(bar, parity, at)) host::spin(at);
    host::step();
}

template <int kStages> struct Ring {
    u32 at = 0, phase = 0;
    void next() {
        if (++at == kStages) at = 0, phase ^= 1;
    }
};

}  // namespace pb
