// What a kernel sees on the host target. Every CUDA thread is a fiber; pb_host.cpp schedules them.
// Loads and stores that belong to the kernel (ldmatrix rows, cp.async copies) are inline here, in the unit that the
// sanitizers instrument; the scheduler is not instrumented and talks to ASan and TSan through weak symbols.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define PB_FN inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// `__shared__`, `__global__`, CUDA intrinsics and vector types are left undefined: a kernel that uses them does not
// compile here.
#define PB_KERNEL(name, P, ...)                                                                                  \
    static void name##_body(const P& p);                                                                         \
    extern "C" __attribute__((visibility("default"))) int name(pb_host_launch* l, const void* params, char* err, \
                                                               size_t err_len) {                                 \
        return pb_host_run(                                                                                      \
            +[](const void* q) {                                                                                 \
                const P p = *(const P*)q;                                                                        \
                name##_body(p);                                                                                  \
            },                                                                                                   \
            params, #name, ::pb::host::first(__VA_ARGS__), l, err, err_len);                                     \
    }                                                                                                            \
    static void name##_body(const P& p)
#define PB_DYN_SMEM(name) unsigned char* const name = ::pb::host::self().smem
#define PB_SHARED_ARRAY(T, name, n)   \
    static const char name##_key = 0; \
    T(&name)[n] = *(T(*)[n])::pb::host::shared_slot(&name##_key, sizeof(T) * (n), alignof(T))
#define PB_AT , ::pb::host::Site at = {__builtin_FILE(), __builtin_LINE()}
#define PB_PASS_AT , at
#define threadIdx (::pb::host::self().tid)
#define blockIdx (::pb::host::self().bid)
#define blockDim (::pb::host::self().bdim)
#define gridDim (::pb::host::self().gdim)

extern "C" {
// All zero but grid and block is a valid launch: sequential blocks, lanes in order.
typedef struct pb_host_launch {
    uint32_t grid[3], block[3];
    uint64_t smem;         // dynamic shared memory in bytes
    uint32_t cooperative;  // all blocks alive at once: grid barriers and spinning on other blocks work
    uint32_t jobs;         // OS threads that share the blocks of a launch that is not cooperative (0 = 1)
    uint64_t seed;         // 0: lanes in order; 1: lanes in reverse; else: random order and random preemption
    uint64_t stack;        // bytes per fiber (0 = 128 KiB)
    uint64_t switches;     // out: context switches made
} pb_host_launch;
// 0: ran; 1: the kernel broke a rule (err says which, where and for which thread); 2: the launch is not valid.
__attribute__((visibility("hidden"))) int pb_host_run(void (*body)(const void*), const void* params, const char* name,
                                                      uint32_t max_threads, pb_host_launch*, char* err, size_t err_len);
}

// Hidden: several units may be loaded into one process, each with its own copy of the runtime.
#pragma GCC visibility push(hidden)
namespace pb::host {
struct Site {
    const char* file;
    int line;
};
struct Dim {
    unsigned x, y, z;
};
enum Op : uint32_t {
    kShflIdx,
    kShflUp,
    kShflDown,
    kShflXor,
    kBallot,
    kSyncwarp,
    kLdmatrix,
    kLdmatrixTrans,
    kMma,
    kBarrier,
    kArrive
};
enum Type : uint32_t { kBf16, kF16 };
struct Copy {
    void* dst;
    const void* src;
    uint64_t group;
    bool valid;
    Site at;
};
constexpr unsigned kMaxCopies = 128;  // cp.async in flight per thread

// The part of a fiber that inline code touches.
struct Lane {
    Dim tid, bid, bdim, gdim;
    unsigned char* smem;
    alignas(16) uint32_t in[12], out[12];  // operands and results of one warp collective
    Copy copies[kMaxCopies];
    unsigned n_copies;
    uint64_t group;  // cp.async groups committed so far
};
Lane& self();
[[noreturn]] void fail(Site at, const char* fmt, ...) __attribute__((format(printf, 2, 3)));
void collective(Op op, uint32_t mask, uint32_t imm, Site at);  // runs when every lane of the mask has come
void bar(int id, int n, bool wait, Site at);                   // id 0, n 0: all threads that have not exited
void preempt();                                                // may run other lanes (random schedules only)
void step();                                                   // the same, and: this thread is making progress
void spin(Site at);                                            // lets every other lane run first
void wait();                                                   // the same, and other launches of this process
uint64_t clock_ns();
bool eager_copies();                                           // random schedules: some cp.async land at once
void* shared_slot(const void* key, size_t bytes, size_t align);
bool in_shared(const void* p, size_t bytes);
constexpr uint32_t first(uint32_t a, ...) {
    return a;
}

typedef uint32_t __attribute__((may_alias)) word_t;
typedef uint16_t __attribute__((may_alias)) half_t;
inline void check_access(const void* p, unsigned bytes, const char* what, Site at) {
    if (((uintptr_t)p & (bytes - 1)) != 0)
        fail(at, "misaligned address %p in %s: must be a multiple of %u", p, what, bytes);
}
inline uint32_t shfl(Op op, uint32_t v, int arg, uint32_t mask, Site at) {
    Lane& me = self();
    me.in[0] = v;
    me.in[1] = (uint32_t)arg;
    collective(op, mask, 0, at);
    return me.out[0];
}
inline uint32_t ballot(bool b, uint32_t mask, Site at) {
    Lane& me = self();
    me.in[0] = b;
    collective(kBallot, mask, 0, at);
    return me.out[0];
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, bool trans, Site at) {
    Lane& me = self();
    check_access(row, 16, "ldmatrix", at);
    if (!in_shared(row, 16)) fail(at, "ldmatrix row %p is outside shared memory", row);
    for (int i = 0; i < 4; i++) me.in[i] = ((const word_t*)row)[i];
    collective(trans ? kLdmatrixTrans : kLdmatrix, ~0u, 0, at);
    for (int i = 0; i < 4; i++) r[i] = me.out[i];
}
inline void mma_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Type t, Site at) {
    Lane& me = self();
    for (int i = 0; i < 4; i++) me.in[i] = a[i];
    me.in[4] = b0;
    me.in[5] = b1;
    __builtin_memcpy(me.in + 6, d, 16);
    collective(kMma, ~0u, t, at);
    __builtin_memcpy(d, me.out, 16);
}
// The copy lands as late as the program allows (at the wait), or at once: a correct kernel cannot tell.
// Until then the destination holds NaNs.
inline void put16(void* dst, const void* src) {
    for (int i = 0; i < 4; i++) ((word_t*)dst)[i] = src ? ((const word_t*)src)[i] : 0u;
}
inline void cp_async16(void* dst, const void* src, bool valid, Site at) {
    Lane& me = self();
    check_access(dst, 16, "cp.async destination", at);
    check_access(src, 16, "cp.async source", at);
    if (!in_shared(dst, 16)) fail(at, "cp.async destination %p is outside shared memory", dst);
    if (me.n_copies == kMaxCopies) fail(at, "more than %u cp.async in flight in one thread", kMaxCopies);
    if (eager_copies()) {
        put16(dst, valid ? src : nullptr);
        return;
    }
    for (int i = 0; i < 4; i++) ((word_t*)dst)[i] = ~0u;
    me.copies[me.n_copies++] = {dst, src, me.group, valid, at};
}
inline void cp_async_commit() {
    self().group++;
}
inline void cp_async_wait(unsigned keep) {
    Lane& me = self();
    unsigned left = 0;
    for (unsigned i = 0; i < me.n_copies; i++) {
        const Copy c = me.copies[i];
        if (c.group + keep < me.group) put16(c.dst, c.valid ? c.src : nullptr);
        else me.copies[left++] = c;
    }
    me.n_copies = left;
    preempt();
}
inline uint16_t f32_to_bf16(float v) {
    uint32_t u;
    __builtin_memcpy(&u, &v, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
inline float bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
inline uint16_t f32_to_f16(float v) {
    uint32_t u;
    __builtin_memcpy(&u, &v, 4);
    const uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7fff;
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // rounds to infinity
    if (a < 0x38800000u) {                                    // subnormal: 2^-24 is one unit
        float m;
        __builtin_memcpy(&m, &a, 4);
        return (uint16_t)(sign | (uint32_t)lrintf(m * 16777216.0f));
    }
    const uint32_t r = a - 0x38000000u;
    return (uint16_t)(sign | (r + 0xfffu + (r >> 13 & 1u)) >> 13);
}
inline float f16_to_f32(uint16_t h) {
    const uint32_t u = (h & 0x7fffu) << 13;
    float f;
    __builtin_memcpy(&f, &u, 4);
    f *= 0x1p112f;  // moves the exponent bias from 15 to 127; right for subnormals too
    uint32_t r;
    __builtin_memcpy(&r, &f, 4);
    if ((h & 0x7c00u) == 0x7c00u) r = (h & 0x3ffu) ? 0x7fffffffu : 0x7f800000u;  // a NaN loses sign and payload
    if (r != 0x7fffffffu) r |= (h & 0x8000u) << 16;
    __builtin_memcpy(&f, &r, 4);
    return f;
}
}  // namespace pb::host
#pragma GCC visibility pop

inline void __syncthreads(pb::host::Site at = {__builtin_FILE(), __builtin_LINE()}) {
    pb::host::bar(0, 0, true, at);
}
inline void __syncwarp(uint32_t mask = ~0u, pb::host::Site at = {__builtin_FILE(), __builtin_LINE()}) {
    pb::host::collective(pb::host::kSyncwarp, mask, 0, at);
}
