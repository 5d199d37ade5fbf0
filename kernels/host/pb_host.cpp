// Runs a grid on the CPU, one fiber per CUDA thread. Compile with -O2 and never with a sanitizer: one object serves
// instrumented and plain units alike.
#include "host/pb_host.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

// Present only in a process that runs under the sanitizer.
extern "C" {
#define WEAK __attribute__((weak))
WEAK void __sanitizer_start_switch_fiber(void** fake, const void* bottom, size_t size);
WEAK void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, size_t* size);
WEAK void __asan_poison_memory_region(const volatile void*, size_t);
WEAK void __asan_unpoison_memory_region(const volatile void*, size_t);
WEAK void* __tsan_get_current_fiber();
WEAK void* __tsan_create_fiber(unsigned flags);
WEAK void __tsan_destroy_fiber(void*);
WEAK void __tsan_switch_to_fiber(void*, unsigned flags);
WEAK void __tsan_acquire(void*);
WEAK void __tsan_release(void*);
}

// Saves the callee-saved registers on the old stack and takes them from the new one.
extern "C" void pb_switch(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl pb_switch
.hidden pb_switch
.type pb_switch,@function
pb_switch:
    push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
    ret
.size pb_switch, .-pb_switch
.section .note.GNU-stack,"",@progbits
.text
)");
static void* first_frame(char* top, void (*entry)()) {
    void** sp = (void**)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = nullptr;       // keeps rsp + 8 a multiple of 16 at entry, and ends back traces
    *--sp = (void*)entry;  // where `ret` goes
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl pb_switch
.hidden pb_switch
.type pb_switch,%function
pb_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0];   stp x21, x22, [sp, #16];  stp x23, x24, [sp, #32]; stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64];  stp x29, x30, [sp, #80];  stp d8, d9, [sp, #96];   stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]; stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0];   ldp x21, x22, [sp, #16];  ldp x23, x24, [sp, #32]; ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64];  ldp x29, x30, [sp, #80];  ldp d8, d9, [sp, #96];   ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size pb_switch, .-pb_switch
.section .note.GNU-stack,"",%progbits
.text
)");
static void* first_frame(char* top, void (*entry)()) {
    void** sp = (void**)((uintptr_t)top & ~(uintptr_t)15) - 20;
    memset(sp, 0, 160);
    sp[11] = (void*)entry;  // x30
    return sp;
}
#else
#error "pb_host: write pb_switch for this processor"
#endif

#pragma GCC visibility push(hidden)
namespace pb::host {
namespace {
void entry();
enum State : uint8_t { kReady, kInWarp, kInBarrier, kExited };
struct Block;
struct Fiber : Lane {
    void* sp = nullptr;
    char* stack = nullptr;
    size_t stack_bytes = 0;
    void *fake = nullptr, *tsan = nullptr;
    Block* block = nullptr;
    unsigned lin = 0, warp = 0, lane = 0;
    State state = kReady;
    uint32_t op = 0, mask = 0, imm = 0;  // what it waits for
    int bar_id = 0;
    Site at{"", 0};
    Fiber* next = nullptr;  // in a barrier's list
};
// A fiber and its stack share one mapping, the fiber on top. They serve one block after the other.
struct Stack {
    char* lo;
    size_t bytes;
    void* tsan = __tsan_create_fiber ? __tsan_create_fiber(0) : nullptr;  // takes a millisecond: hence kept
    explicit Stack(size_t n) : bytes(n) {
        char* p =
            (char*)mmap(nullptr, n + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            perror("pb_host: stack");
            abort();
        }
        mprotect(p, 4096, PROT_NONE);  // an overflow faults
        lo = p + 4096;
    }
    ~Stack() {
        if (tsan) __tsan_destroy_fiber(tsan);
        munmap(lo - 4096, bytes + 4096);
    }
    Fiber* fiber(unsigned colour) {
        if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(lo, bytes);
        char* top = lo + bytes - (sizeof(Fiber) + 63) / 64 * 64 -
                    colour * 448 % 4096;  // spreads the hot lines over the cache's sets
        Fiber* f = new (top) Fiber;
        f->stack = lo;
        f->stack_bytes = (size_t)(top - lo);
        f->sp = first_frame(top, entry);
        f->tsan = tsan;
        return f;
    }
};
struct Bar {
    unsigned arrived = 0, expected = 0, phase = 0;
    Fiber* waiting = nullptr;
    char sync[2] = {};
};
// Addresses that stand for TSan's happens-before edges of __syncwarp: one pair per lowest lane of a mask, used in
// turn.
struct WarpSync {
    char at[32][2] = {};
    uint32_t turn = 0;
};
struct Slot {
    const void* key;
    unsigned char* p;
    size_t bytes;
};
constexpr size_t kStaticBytes = 48 << 10, kRedzone = 1024, kMaxDynamic = 227 << 10;
struct Block {
    Dim id{};
    std::vector<Fiber*> fibers;
    std::vector<uint32_t> warp_live, warp_in;  // lanes that have not exited; lanes that wait in a collective
    std::vector<WarpSync> warp_sync;
    unsigned live = 0;
    Bar bars[16];
    unsigned char* arena = nullptr;
    size_t arena_bytes = 0, dyn = 0, used = 0;
    Slot slots[32];
    unsigned n_slots = 0;
};
struct Engine {
    const pb_host_launch* l = nullptr;
    void (*body)(const void*) = nullptr;
    const void* params = nullptr;
    const char* name = "";
    Fiber main;
    std::vector<Fiber*> ready;  // a stack: the warp at work stays at work
    std::vector<Fiber*> later;  // those that spin: they run again when nobody else can
    uint64_t idle_spins = 0;    // since anything else happened
    uint64_t rng = 0, switches = 0;
    unsigned fuel = 0;
    char begin_edge = 0, end_edge = 0;  // TSan: launcher -> fibers, fibers -> launcher
    bool random = false, reverse = false, failed = false;
    char err[2048] = "";
    uint64_t draw() {
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        return rng;
    }
};
thread_local Engine* eng;
thread_local Fiber* cur;  // nullptr: the scheduler itself runs

void resumed(Fiber* f) {
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(f->fake, nullptr, nullptr);
}
void switch_to(Fiber* to, bool dying = false) {
    Engine& e = *eng;
    Fiber* from = cur ? cur : &e.main;
    if (from == to) return;
    e.switches++;
    cur = to == &e.main ? nullptr : to;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake, to->stack, to->stack_bytes);
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to->tsan, 1 /* no happens-before edge */);
    pb_switch(&from->sp, to->sp);
    resumed(from);
}
Fiber* pick() {
    Engine& e = *eng;
    if (e.ready.empty()) e.ready.swap(e.later);
    if (e.ready.empty()) return &e.main;
    if (e.random) std::swap(e.ready.back(), e.ready[e.draw() % e.ready.size()]);
    Fiber* f = e.ready.back();
    e.ready.pop_back();
    return f;
}
bool same(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}
void wake(Fiber* f) {
    f->state = kReady;
    eng->ready.push_back(f);
}

std::string where(const Fiber& f) {
    char b[160];
    snprintf(b, sizeof b, "block (%u,%u,%u) thread (%u,%u,%u)", f.bid.x, f.bid.y, f.bid.z, f.tid.x, f.tid.y, f.tid.z);
    return b;
}
const char* op_name(uint32_t op) {
    static const char* const n[] = {"shfl",     "shfl_up",        "shfl_down", "shfl_xor", "ballot",    "__syncwarp",
                                    "ldmatrix", "ldmatrix.trans", "mma",       "barrier",  "bar.arrive"};
    return n[op];
}
std::string describe(const Fiber& f) {
    if (f.state == kExited) return "exited";
    if (f.state == kReady) return "running";
    char b[300];
    if (f.state == kInBarrier)
        snprintf(b, sizeof b, f.bar_id ? "in bar.sync %d at %s:%d" : "in __syncthreads%.0d at %s:%d", f.bar_id,
                 f.at.file, f.at.line);
    else snprintf(b, sizeof b, "in %s mask %08x at %s:%d", op_name(f.op), f.mask, f.at.file, f.at.line);
    return b;
}
std::string table(const Block& b) {  // "threads 0-31: ...; threads 32-63: ..."
    std::string s;
    for (size_t i = 0, j; i < b.fibers.size(); i = j) {
        const std::string d = describe(*b.fibers[i]);
        for (j = i + 1; j < b.fibers.size() && describe(*b.fibers[j]) == d; j++) {
        }
        s += "\n  threads " + std::to_string(i) + "-" + std::to_string(j - 1) + ": " + d;
        if (s.size() > 1200) {
            s += "\n  ...";
            break;
        }
    }
    return s;
}
void refuse(const char* fmt, ...) {
    va_list v;
    va_start(v, fmt);
    vsnprintf(eng->err, sizeof eng->err, fmt, v);
    va_end(v);
    eng->failed = true;
}

// ---- warp collectives: each lane leaves its operands in `in`; the last one to come fills everybody's `out`
// ----------
void execute(Fiber* const* w, uint32_t op, uint32_t mask, uint32_t imm, Site at) {
    if (op <= kShflXor) {
        for (unsigned i = 0; i < 32; i++) {
            if (!(mask >> i & 1)) continue;
            const int arg = (int)w[i]->in[1];
            int s = op == kShflIdx    ? arg & 31
                    : op == kShflUp   ? (int)i - arg
                    : op == kShflDown ? (int)i + arg
                                      : (int)i ^ arg;
            if (s < 0 || s > 31) s = (int)i;  // out of the warp: own value, as in hardware
            if (!(mask >> s & 1))
                fail(at, "%s: lane %u reads lane %d, which is not in mask %08x", op_name(op), i, s, mask);
            w[i]->out[0] = w[s]->in[0];
        }
    } else if (op == kBallot) {
        uint32_t r = 0;
        for (unsigned i = 0; i < 32; i++)
            if (mask >> i & 1) r |= (w[i]->in[0] & 1) << i;
        for (unsigned i = 0; i < 32; i++)
            if (mask >> i & 1) w[i]->out[0] = r;
    } else if (op == kLdmatrix || op == kLdmatrixTrans) {
        // lane 8j+r holds row r of 8x8 matrix j; lane i gets elements (i/4, 2(i%4)) and the next one
        auto el = [&](unsigned j, unsigned r, unsigned c) {
            return (uint16_t)(w[8 * j + r]->in[c / 2] >> (c & 1) * 16);
        };
        for (unsigned i = 0; i < 32; i++)
            for (unsigned j = 0; j < 4; j++) {
                const unsigned r = i / 4, c = i % 4 * 2;
                w[i]->out[j] = op == kLdmatrix ? el(j, r, c) | (uint32_t)el(j, r, c + 1) << 16
                                               : el(j, c, r) | (uint32_t)el(j, c + 1, r) << 16;
            }
    } else if (op == kMma) {
        alignas(32) float a[16][16], b[16][8], d[16][8];
        const bool bf = imm == kBf16;
        auto f = [&](uint32_t x) { return bf ? bf16_to_f32((uint16_t)x) : f16_to_f32((uint16_t)x); };
        for (unsigned i = 0; i < 32; i++) {
            const uint32_t* in = w[i]->in;
            float c[4];
            memcpy(c, in + 6, 16);
            const unsigned g = i / 4, t = i % 4 * 2;
            for (unsigned k = 0; k < 4; k++) {
                const unsigned row = g + (k & 1) * 8, col = t + (k & 2) * 4;
                a[row][col] = f(in[k]);
                a[row][col + 1] = f(in[k] >> 16);
            }
            for (unsigned k = 0; k < 2; k++) {
                b[t + 8 * k][g] = f(in[4 + k]);
                b[t + 8 * k + 1][g] = f(in[4 + k] >> 16);
            }
            d[g][t] = c[0];
            d[g][t + 1] = c[1];
            d[g + 8][t] = c[2];
            d[g + 8][t + 1] = c[3];
        }
        typedef float vec __attribute__((vector_size(32)));
        for (unsigned m = 0; m < 16; m++) {
            vec s = {};
            for (unsigned k = 0; k < 16; k++) s += a[m][k] * *(const vec*)b[k];
            *(vec*)d[m] += s;
        }
        for (unsigned i = 0; i < 32; i++) {
            const unsigned g = i / 4, t = i % 4 * 2;
            const float r[4] = {d[g][t], d[g][t + 1], d[g + 8][t], d[g + 8][t + 1]};
            memcpy(w[i]->out, r, 16);
        }
    }
}
void open_barrier(Bar& b) {
    // .aligned: the lanes of a warp must come from one place; for __syncthreads all threads of the block must
    const Fiber* first[32] = {};
    for (const Fiber* f = b.waiting; f; f = f->next) {
        const Fiber*& g = first[f->bar_id == 0 ? 0 : f->warp];
        if (!g) g = f;
        if (!same(f->at, g->at))
            fail(f->at, "divergent barrier %d: thread %u came to %s:%d, thread %u to %s:%d", f->bar_id, f->lin,
                 f->at.file, f->at.line, g->lin, g->at.file, g->at.line);
    }
    b.phase ^= 1;
    b.arrived = 0;
    for (Fiber *f = b.waiting, *n; f; f = n) {
        n = f->next;
        f->next = nullptr;
        wake(f);
    }
    b.waiting = nullptr;
}
void on_exit_of(Fiber* f) {
    Block& b = *f->block;
    f->state = kExited;
    b.live--;
    b.warp_live[f->warp] &= ~(1u << f->lane);
    eng->idle_spins = 0;
    for (uint32_t in = b.warp_in[f->warp]; in; in &= in - 1) {
        const Fiber& o = *b.fibers[f->warp * 32 + (unsigned)__builtin_ctz(in)];
        if (o.mask >> f->lane & 1)
            fail(o.at, "%s: mask %08x names lane %u, which has just exited", op_name(o.op), o.mask, f->lane);
    }
    Bar& z = b.bars[0];
    if (b.live && z.waiting && z.arrived == b.live) open_barrier(z);
}
void entry() {
    Engine& e = *eng;
    if (__sanitizer_finish_switch_fiber) {
        const void* lo;
        size_t n;
        __sanitizer_finish_switch_fiber(nullptr, &lo, &n);
        if (!e.main.stack_bytes) {
            e.main.stack = (char*)lo;
            e.main.stack_bytes = n;
        }  // the first fiber comes from the scheduler
    }
    if (__tsan_acquire) __tsan_acquire(&e.begin_edge);
    e.body(e.params);
    if (cur->n_copies) fail(cur->copies[0].at, "a thread ends with %u cp.async in flight", cur->n_copies);
    if (__tsan_release) __tsan_release(&e.end_edge);
    on_exit_of(cur);
    switch_to(pick(), true);
    abort();
}
void begin_block(Block& b, Dim id, const pb_host_launch& l, std::vector<std::unique_ptr<Stack>>& pool, size_t stack,
                 size_t& used) {
    const unsigned n = l.block[0] * l.block[1] * l.block[2];
    b.id = id;
    b.dyn = l.smem;
    b.used = (l.smem + kRedzone + 15) & ~size_t(15);
    b.arena_bytes = b.used + kStaticBytes;
    if (!b.arena) b.arena = (unsigned char*)aligned_alloc(1024, (b.arena_bytes + 1023) & ~size_t(1023));
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(b.arena, b.arena_bytes);
    memset(b.arena, 0xff, b.arena_bytes);  // NaN in every float type, -1 in integers
    if (__asan_poison_memory_region) __asan_poison_memory_region(b.arena + l.smem, b.arena_bytes - l.smem);
    b.n_slots = 0;
    b.live = n;
    b.warp_live.assign(n / 32, ~0u);
    b.warp_in.assign(n / 32, 0);
    b.warp_sync.assign(n / 32, {});
    for (Bar& x : b.bars) x = Bar{};
    b.fibers.resize(n);
    Engine& e = *eng;
    for (unsigned i = 0; i < n; i++) {
        if (used == pool.size()) pool.push_back(std::make_unique<Stack>(stack));
        Fiber& f = *pool[used++]->fiber(i);
        f.block = &b;
        f.lin = i;
        f.warp = i / 32;
        f.lane = i % 32;
        f.tid = {i % l.block[0], i / l.block[0] % l.block[1], i / (l.block[0] * l.block[1])};
        f.bid = id;
        f.bdim = {l.block[0], l.block[1], l.block[2]};
        f.gdim = {l.grid[0], l.grid[1], l.grid[2]};
        f.smem = b.arena;
        f.n_copies = 0;
        f.group = 0;
        b.fibers[i] = &f;
    }
    for (unsigned i = 0; i < n; i++) e.ready.push_back(b.fibers[e.reverse ? i : n - 1 - i]);
}
void end_block(Block& b) {
    if (eng->failed &&
        __tsan_release)  // speak for the abandoned fibers: what they did lies before what the caller does next
        for (Fiber* f : b.fibers) {
            __tsan_switch_to_fiber(f->tsan, 1);
            __tsan_release(&eng->end_edge);
            __tsan_switch_to_fiber(eng->main.tsan, 1);
            __tsan_acquire(&eng->end_edge);
        }
    if (eng->failed) return;
    if (b.live) {
        refuse("deadlock in block (%u,%u,%u): nobody can go on%s", b.id.x, b.id.y, b.id.z, table(b).c_str());
        return;
    }
    for (Bar& x : b.bars)
        if (x.arrived) {
            refuse("block (%u,%u,%u) ends with %u threads counted at barrier %d", b.id.x, b.id.y, b.id.z, x.arrived,
                   (int)(&x - b.bars));
            return;
        }
    if (__asan_poison_memory_region) return;
    const unsigned char* gap = b.arena + b.dyn;
    for (unsigned i = 0; i <= b.n_slots; i++) {  // what belongs to nobody must still hold the pattern
        const unsigned char* end = i < b.n_slots ? b.slots[i].p : b.arena + std::min(b.arena_bytes, b.used + kRedzone);
        for (; gap < end; gap++)
            if (*gap != 0xff) {
                refuse("block (%u,%u,%u) wrote past the end of %s shared memory, at byte %td of the arena", b.id.x,
                       b.id.y, b.id.z, i ? "a static array in" : "its dynamic", gap - b.arena);
                return;
            }
        if (i < b.n_slots) gap = b.slots[i].p + b.slots[i].bytes;
    }
}
void free_block(Block& b) {
    if (!b.arena) return;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(b.arena, b.arena_bytes);
    free(b.arena);
    b.arena = nullptr;
}
void drain() {
    if (__tsan_release) __tsan_release(&eng->begin_edge);
    while (!eng->failed && !(eng->ready.empty() && eng->later.empty())) switch_to(pick());
    if (__tsan_acquire) __tsan_acquire(&eng->end_edge);
}

// Runs blocks taken from `next` until none is left.
int work(Engine& e, std::atomic<uint64_t>& next, uint64_t total, std::atomic<bool>& stop) {
    const pb_host_launch& l = *e.l;
    eng = &e;
    cur = nullptr;
    if (__tsan_get_current_fiber) e.main.tsan = __tsan_get_current_fiber();
    static thread_local std::vector<std::unique_ptr<Stack>> pool;  // stacks are kept for the next launch
    const size_t stack = l.stack ? (l.stack + 4095) & ~uint64_t(4095) : 128 << 10;
    if (!pool.empty() && pool[0]->bytes != stack) pool.clear();
    auto at = [&](uint64_t i) {
        return Dim{(unsigned)(i % l.grid[0]), (unsigned)(i / l.grid[0] % l.grid[1]),
                   (unsigned)(i / ((uint64_t)l.grid[0] * l.grid[1]))};
    };
    std::vector<std::unique_ptr<Block>> blocks;
    const unsigned threads = l.block[0] * l.block[1] * l.block[2];
    e.ready.reserve((l.cooperative ? total : 1) * threads + 1);
    e.later.reserve(e.ready.capacity());
    if (l.cooperative) {
        size_t used = 0;
        for (uint64_t i = 0; i < total; i++) {
            blocks.push_back(std::make_unique<Block>());
            begin_block(*blocks.back(), at(e.reverse ? i : total - 1 - i), l, pool, stack, used);
        }
        drain();
        for (auto& b : blocks) end_block(*b);
    } else {
        for (uint64_t i; !stop && !e.failed && (i = next.fetch_add(1)) < total;) {
            if (blocks.empty()) blocks.push_back(std::make_unique<Block>());
            size_t used = 0;
            begin_block(*blocks.back(), at(e.reverse ? total - 1 - i : i), l, pool, stack, used);
            drain();
            end_block(*blocks.back());
        }
    }
    for (auto& b : blocks) free_block(*b);
    if (__asan_unpoison_memory_region)
        for (auto& f : pool) __asan_unpoison_memory_region(f->lo, f->bytes);
    e.main.stack = nullptr;  // not ours to unmap
    if (e.failed) stop = true;
    eng = nullptr;
    return e.failed;
}
}  // namespace

Lane& self() {
    return *cur;
}
void fail(Site at, const char* fmt, ...) {
    Engine& e = *eng;
    char m[1024];
    va_list v;
    va_start(v, fmt);
    vsnprintf(m, sizeof m, fmt, v);
    va_end(v);
    refuse("%s\n  at %s:%d, %s", m, at.file, at.line, cur ? where(*cur).c_str() : "scheduler");
    switch_to(&e.main, true);  // every fiber of the launch is abandoned where it stands
    abort();
}
void collective(Op op, uint32_t mask, uint32_t imm, Site at) {
    step();
    Fiber& me = *cur;
    Block& b = *me.block;
    Fiber* const* w = &b.fibers[me.warp * 32];
    if (!(mask >> me.lane & 1)) fail(at, "%s: the calling lane %u is not in mask %08x", op_name(op), me.lane, mask);
    if ((b.warp_live[me.warp] & mask) != mask)
        fail(at, "%s: mask %08x names lanes %08x, which have exited", op_name(op), mask, mask & ~b.warp_live[me.warp]);
    me.op = op;
    me.mask = mask;
    me.imm = imm;
    me.at = at;
    me.state = kInWarp;
    char* edge = nullptr;
    const uint32_t low = mask & -mask;
    if (op == kSyncwarp && __tsan_release) {
        WarpSync& s = b.warp_sync[me.warp];
        __tsan_release(edge = &s.at[__builtin_ctz(mask)][(s.turn & low) != 0]);
    }
    uint32_t& in = b.warp_in[me.warp];
    in |= 1u << me.lane;
    bool complete = (in & mask) == mask;
    for (unsigned i = 0; complete && i < 32; i++) {
        const Fiber& o = *w[i];
        if (!(mask >> i & 1)) continue;
        if (o.mask != mask) complete = false;  // that lane is in an inner collective first
        else if (o.op != op || o.imm != imm || !same(o.at, at))
            fail(at, "divergent warp %u: lane %u is %s, lane %u in %s at %s:%d", me.warp, i, describe(o).c_str(),
                 me.lane, op_name(op), at.file, at.line);
    }
    if (!complete) switch_to(pick());
    else {
        execute(w, op, mask, imm, at);
        in &= ~mask;
        b.warp_sync[me.warp].turn ^= low;
        for (unsigned i = 32; i-- > 0;) {  // the lowest lane comes next; the last one to come goes on at once
            const unsigned j = eng->reverse ? 31 - i : i;
            if (mask >> j & 1 && w[j] != &me) wake(w[j]);
        }
        me.state = kReady;
        preempt();
    }
    if (edge) __tsan_acquire(edge);
}
void bar(int id, int n, bool wait, Site at) {
    step();
    Fiber& me = *cur;
    Block& b = *me.block;
    if (id < 0 || id > 15) fail(at, "barrier %d does not exist: 0 to 15 do", id);
    Bar& x = b.bars[id];
    if (id != 0 && (n <= 0 || n % 32 || n > (int)b.fibers.size()))
        fail(at, "barrier %d: %d is not a multiple of 32 up to the block's %zu threads", id, n, b.fibers.size());
    if (id != 0 && x.arrived && x.expected != (unsigned)n)
        fail(at, "barrier %d: this thread expects %d threads, others %u", id, n, x.expected);
    me.op = wait ? kBarrier : kArrive;
    me.bar_id = id;
    me.at = at;
    x.expected = id == 0 ? 0 : (unsigned)n;
    const unsigned phase = x.phase;
    if (__tsan_release) __tsan_release(&x.sync[phase]);
    x.arrived++;
    if (wait) {
        me.next = x.waiting;
        x.waiting = &me;
        me.state = kInBarrier;
    }
    if (x.arrived == (id == 0 ? b.live : x.expected)) {
        open_barrier(x);  // `me` is queued too if it waits
        if (!wait) return;
        switch_to(pick());
    } else if (wait) {
        switch_to(pick());
    } else return;
    if (__tsan_acquire) __tsan_acquire(&x.sync[phase]);
}
void preempt() {
    Engine* e = eng;
    if (!e || !e->random || !cur || e->failed) return;
    if (e->fuel--) return;
    e->fuel = (unsigned)(e->draw() % 24);
    if (e->ready.empty()) return;
    e->ready.push_back(cur);
    switch_to(pick());
}
void spin(Site at) {
    Engine& e = *eng;
    if (++e.idle_spins > 1000000)
        fail(at, "threads wait for a value that nobody changes%s%s",
             e.l->cooperative ? "" : " (blocks of a launch that is not cooperative run one after the other)",
             table(*cur->block).c_str());
    e.later.push_back(cur);
    switch_to(pick());
}
void wait() {
    Engine& e = *eng;
    if (e.ready.empty()) std::this_thread::yield();
    e.later.push_back(cur);
    switch_to(pick());
}
uint64_t clock_ns() {
    return (uint64_t)std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void step() {
    eng->idle_spins = 0;
    preempt();
}
bool eager_copies() {
    return eng->random && (eng->draw() & 1);
}
void* shared_slot(const void* key, size_t bytes, size_t align) {
    Block& b = *cur->block;
    for (unsigned i = 0; i < b.n_slots; i++)
        if (b.slots[i].key == key) return b.slots[i].p;
    const size_t at = (b.used + align - 1) / align * align;
    if (b.n_slots == 32 || at + bytes + 64 > b.arena_bytes)
        fail(cur->at, "more than %zu bytes or 32 arrays of static shared memory", kStaticBytes);
    b.used = at + bytes + 64;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(b.arena + at, bytes);
    b.slots[b.n_slots++] = {key, b.arena + at, bytes};
    return b.arena + at;
}
bool in_shared(const void* p, size_t bytes) {
    const Block& b = *cur->block;
    const unsigned char* q = (const unsigned char*)p;
    if (q >= b.arena && q + bytes <= b.arena + b.dyn) return true;
    for (unsigned i = 0; i < b.n_slots; i++)
        if (q >= b.slots[i].p && q + bytes <= b.slots[i].p + b.slots[i].bytes) return true;
    return false;
}
}  // namespace pb::host
#pragma GCC visibility pop

// Called at every basic block of a kernel compiled with -fsanitize-coverage=trace-pc: preemption between barriers.
extern "C" __attribute__((visibility("hidden"))) void __sanitizer_cov_trace_pc() {
    pb::host::preempt();
}

extern "C" int pb_host_run(void (*body)(const void*), const void* params, const char* name, uint32_t max_threads,
                           pb_host_launch* l, char* err, size_t err_len) {
    using namespace pb::host;
    auto bad = [&](const char* what, uint64_t got, const char* want) {
        snprintf(err, err_len, "%s: %s is %llu, must be %s", name, what, (unsigned long long)got, want);
        return 2;
    };
    const uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2],
                   total = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    if (threads == 0 || threads > max_threads || threads % 32)
        return bad("the block", threads, "a multiple of 32 within the launch bounds");
    if (total == 0 || l->grid[0] > 0x7fffffffu || l->grid[1] > 65535 || l->grid[2] > 65535)
        return bad("the grid", total, "1 .. 2^31-1 x 65535 x 65535");
    if (l->smem > kMaxDynamic) return bad("dynamic shared memory", l->smem, "at most 232448 bytes");
    if (l->cooperative && total * threads > 16384)
        return bad("a cooperative grid", total * threads,
                   "at most 16384 threads here");  // each stack takes two of the 65530 mappings
    std::atomic<uint64_t> next{0};
    std::atomic<bool> stop{false};
    const unsigned jobs = l->cooperative || l->jobs == 0 ? 1 : l->jobs;
    std::vector<std::unique_ptr<Engine>> es;
    for (unsigned i = 0; i < jobs; i++) {
        es.push_back(std::make_unique<Engine>());
        Engine& e = *es.back();
        e.l = l;
        e.body = body;
        e.params = params;
        e.name = name;
        e.reverse = l->seed == 1;
        e.random = l->seed > 1;
        e.rng = (l->seed + i) * 0x9e3779b97f4a7c15ull | 1;
    }
    std::vector<std::thread> ts;
    for (unsigned i = 1; i < jobs; i++) ts.emplace_back([&, i] { work(*es[i], next, total, stop); });
    work(*es[0], next, total, stop);
    for (auto& t : ts) t.join();
    int rc = 0;
    uint64_t sw = 0;
    for (auto& e : es) {
        sw += e->switches;
        if (e->failed && !rc) {
            rc = 1;
            snprintf(err, err_len, "%s: %s", name, e->err);
        }
    }
    l->switches = sw;
    return rc;
}
