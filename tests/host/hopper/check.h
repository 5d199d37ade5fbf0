// What the tests of Hopper's kernels share: values, comparisons, launches on the host target.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "parbake/fp8.cuh"
#include "parbake/vec.cuh"

using namespace pb;

inline std::mt19937 random_bits;
inline int below(int n) {
    return n > 0 ? (int)(random_bits() % (unsigned)n) : 0;
}
inline int between(int low, int high) {
    return low + below(high - low + 1);
}

inline int wrong = 0;
inline void compare(const char* what, i64 row, i64 column, double got, double want, double by) {
    if (std::fabs(got - want) <= by) return;
    if (wrong++ >= 8) return;
    std::printf("%s: row %lld, column %lld: %g instead of %g\n", what, (long long)row, (long long)column, got, want);
}

// Elements at a multiple of 16 bytes; what lies around them is no number.
template <class T> class Array {
    std::vector<T> room;
    T* first;

  public:
    explicit Array(i64 n, std::function<double()> draw) : room(n + 64) {
        std::memset((void*)room.data(), 0xff, room.size() * sizeof(T));
        first = (T*)(((uintptr_t)(room.data() + 16) + 15) & ~(uintptr_t)15);
        for (i64 i = 0; i < n; i++) first[i] = of(draw());
    }
    static T of(double v) {
        if constexpr (sizeof(T) == 4) {
            return (T)v;
        } else if constexpr (sizeof(T) == 2) {
            return convert<T>::from((float)v);
        } else {
            const float all[4] = {(float)v, 0, 0, 0};
            return {(u8)pack<e4m3, 4>(all).w[0]};
        }
    }
    T* data() const { return first; }
    double operator[](i64 i) const {
        if constexpr (sizeof(T) == 4) return (double)first[i];
        else return to_f32(first[i]);
    }
};

inline double unit() {
    return below(2001) / 1000.0 - 1;
}
inline double factor() {
    return (1 + below(16)) / 16.0;
}
inline double untouched() {
    return 448;
}

using Kernel = int(pb_host_launch*, const void*, char*, size_t);

// `blocks` of kThreads of S, with its shared memory.
template <class S, class P> bool launch(Kernel* kernel, const P& p, u64 seed, int blocks) {
    pb_host_launch l = {};
    l.grid[0] = (unsigned)blocks, l.block[0] = S::kThreads;
    l.grid[1] = l.grid[2] = l.block[1] = l.block[2] = 1;
    l.smem = S::kShared, l.seed = seed, l.stack = 1 << 18;
    char error[512] = {};
    const int code = kernel(&l, &p, error, sizeof error);
    if (code) std::printf("%s\n", error);
    wrong += code != 0;
    return code == 0;
}

struct Test {
    const char* name;
    void (*run)(Kernel*, u64);
    Kernel* kernel;
};

// Runs each test with each seed of the arguments, which are those of schedules, as pb_host.h has them; shapes and values
// are drawn from it too.
template <int kCount> int run_all(const Test (&tests)[kCount], int count, char** arguments) {
    int cases = 0;
    for (int i = 1; i < count; i++)
        for (const Test& test : tests) {
            const int before = wrong;
            random_bits.seed((unsigned)std::atoi(arguments[i]) * 100 + (unsigned)cases++);
            test.run(test.kernel, (u64)std::atoi(arguments[i]));
            if (wrong > before) std::printf("%s is wrong with seed %s\n", test.name, arguments[i]);
        }
    std::printf("%d cases\n", cases);
    return wrong != 0;
}
