// Runs every norm unit linked into this program on the host target and compares it with a float64 reference.
// usage: norm [--quick] [SEED ...]: 0 lanes in order, 1 in reverse, else random and reproducible.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "norm/fused_add_rmsnorm/params.h"
#include "norm/rmsnorm/params.h"
#include "units.h"

using namespace pb::host;

// Poisoned elements around a matrix. Under ASan there are none: the red zones of the heap do it, and see reads too.
extern "C" void __asan_init() __attribute__((weak));
static const size_t kGuard = __asan_init ? 0 : 64;

static uint64_t rng_state;
static uint64_t draw() {
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return rng_state * 0x2545f4914f6cdd1dull;
}
static float roughly_normal() {
    float s = 0;
    for (int i = 0; i < 4; i++) s += (float)(draw() >> 40) * 0x1p-24f;
    return (s - 2.f) * 1.7320508f;
}

// One of the element types, as bits.
struct Element {
    const char* name;
    size_t bytes;
    uint32_t (*to)(float);
    float (*from)(uint32_t);
    uint32_t poison;  // a NaN that no conversion produces
};
static uint32_t f32_bits(float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}
static float f32_value(uint32_t u) {
    float v;
    memcpy(&v, &u, 4);
    return v;
}
static const Element kElements[] = {
    {"bf16", 2, [](float v) -> uint32_t { return f32_to_bf16(v); }, [](uint32_t b) { return bf16_to_f32((uint16_t)b); },
     0xffb5},
    {"f16", 2, [](float v) -> uint32_t { return f32_to_f16(v); }, [](uint32_t b) { return f16_to_f32((uint16_t)b); },
     0xfeb5},
    {"f32", 4, f32_bits, f32_value, 0xffb5b5b5},
};
static const Element& type_of(const char* name) {
    for (const Element& t : kElements)
        if (!strcmp(t.name, name)) return t;
    abort();
}

// A strided matrix inside a poisoned allocation: what lies before, between and after the rows must stay as it is.
struct Matrix {
    const Element* t;
    size_t rows, cols, stride, offset;
    std::vector<unsigned char> store;
    Matrix(const Element& type, size_t r, size_t c, size_t s, size_t off)
        : t(&type), rows(r), cols(c), stride(s), offset(off + kGuard) {
        store.resize((offset + (r - 1) * s + c + kGuard) * t->bytes);
        for (size_t i = 0; i < store.size() / t->bytes; i++) memcpy(&store[i * t->bytes], &t->poison, t->bytes);
    }
    unsigned char* at(size_t r, size_t c) { return &store[(offset + r * stride + c) * t->bytes]; }
    uint32_t bits(size_t r, size_t c) {
        uint32_t b = 0;
        memcpy(&b, at(r, c), t->bytes);
        return b;
    }
    double value(size_t r, size_t c) { return t->from(bits(r, c)); }
    void set(size_t r, size_t c, float v) {
        const uint32_t b = t->to(v);
        memcpy(at(r, c), &b, t->bytes);
    }
    void fill(float scale) {
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++) set(r, c, scale * roughly_normal());
    }
    // The first element outside the rows that is no longer poison, or -1.
    long disturbed() const {
        for (size_t i = 0; i < store.size() / t->bytes; i++) {
            const size_t j = i - offset;
            if (i >= offset && j % stride < cols && j / stride < rows) continue;
            if (memcmp(&store[i * t->bytes], &t->poison, t->bytes)) return (long)i;
        }
        return -1;
    }
    uintptr_t address() const { return (uintptr_t)(store.data() + offset * t->bytes); }
    bool aligned(unsigned bytes) const { return (address() | stride * t->bytes | cols * t->bytes) % bytes == 0; }
};
// What kernels/norm/TACTICS.md calls legal.
static bool legal(const Unit& u, const Matrix& x, const Matrix& y, const Matrix& w) {
    if (!u.peel) return x.aligned(u.vec) && y.aligned(u.vec) && w.aligned(u.vec);
    return (x.address() - y.address()) % u.vec == 0 && (x.stride - y.stride) * x.t->bytes % u.vec == 0;
}

// Error in units of what is allowed: one ulp of a 16-bit type, 1e-6 + 1e-5 |ref| for f32. NaN is infinite.
static double error(const Element& t, uint32_t bits, double ref) {
    const double got = t.from(bits);
    if (t.bytes == 4) {
        const double e = fabs(got - ref) / (1e-6 + 1e-5 * fabs(ref));
        return e == e ? e : INFINITY;
    }
    const uint32_t want = t.to((float)ref);
    auto order = [](uint32_t b) { return b & 0x8000 ? -(int)(b & 0x7fff) : (int)b; };
    if (got != got || t.from(want) != t.from(want)) return INFINITY;
    return abs(order(bits) - order(want));
}

struct Shape {
    size_t rows, hidden, pad_x, pad_y, offset_x, offset_y;  // in elements
    bool in_place;
    float scale, bias;
};
struct Tally {
    int cases = 0, failed = 0;
    double worst = 0;
};

static void run(const Unit& u, Shape s, uint64_t seed, uint32_t threads, Tally& tally) {
    const Element& t = type_of(u.dtype);
    const bool fused = !strcmp(u.op, "fused_add_rmsnorm");
    if (fused) s.in_place = false;
    Matrix x(t, s.rows, s.hidden, s.hidden + s.pad_x, s.offset_x), w(t, 1, s.hidden, s.hidden, s.offset_x);
    Matrix y(t, s.rows, s.hidden, s.hidden + s.pad_y, s.offset_y);  // the output, or the residual
    if (!legal(u, x, s.in_place ? x : y, w)) return;
    const float eps = 1e-5f;
    x.fill(s.scale);
    w.fill(1.f);
    if (fused) y.fill(s.scale);
    Matrix x0 = x, y0 = y, w0 = w;

    pb_rmsnorm_params rp{x.at(0, 0),
                         w.at(0, 0),
                         s.in_place ? x.at(0, 0) : y.at(0, 0),
                         (pb_i64)x.stride,
                         (pb_i64)(s.in_place ? x.stride : y.stride),
                         (pb_i64)s.rows,
                         (pb_i32)s.hidden,
                         eps,
                         s.bias};
    pb_fused_add_rmsnorm_params fp{
        x.at(0, 0),       y.at(0, 0), w.at(0, 0), (pb_i64)x.stride, (pb_i64)y.stride, (pb_i64)s.rows,
        (pb_i32)s.hidden, eps,        s.bias};
    pb_host_launch l{};
    l.grid[0] = (uint32_t)((s.rows + u.rows - 1) / u.rows), l.grid[1] = l.grid[2] = 1;
    l.block[0] = threads, l.block[1] = l.block[2] = 1;
    l.seed = seed;
    char err[2048] = "";
    auto complain = [&](const char* what) {
        if (tally.failed++ < 3)
            printf("  %s rows %zu hidden %zu pads %zu %zu offsets %zu %zu block %u seed %llu%s: %s\n", u.name, s.rows,
                   s.hidden, s.pad_x, s.pad_y, s.offset_x, s.offset_y, threads, (unsigned long long)seed,
                   s.in_place ? " in place" : "", what);
    };
    tally.cases++;
    if (u.entry(&l, fused ? (void*)&fp : (void*)&rp, err, sizeof err)) return complain(err);

    Matrix& out = fused || s.in_place ? x : y;
    double worst = 0;
    bool residual_differs = false;
    for (size_t r = 0; r < s.rows; r++) {
        double squares = 0;
        auto in = [&](size_t c) {
            return fused ? (double)((float)x0.value(r, c) + (float)y0.value(r, c)) : x0.value(r, c);
        };
        for (size_t c = 0; c < s.hidden; c++) squares += in(c)*in(c);
        const double scale = 1 / sqrt(squares / (double)s.hidden + eps);
        for (size_t c = 0; c < s.hidden; c++) {
            worst = fmax(worst, error(t, out.bits(r, c), in(c)*scale * (w0.value(0, c) + s.bias)));
            if (fused) residual_differs |= y.bits(r, c) != t.to((float)in(c));
        }
    }
    tally.worst = fmax(tally.worst, worst);
    char what[96];
    if (!(worst <= 1)) snprintf(what, sizeof what, "error %g times the tolerance", worst), complain(what);
    if (residual_differs) complain("the residual is not the rounded sum");
    if (x.disturbed() >= 0 || y.disturbed() >= 0) complain("wrote outside the rows");
    if (x.store != x0.store && &out != &x) complain("the input was changed");
    if (w.store != w0.store) complain("the weight was changed");
}

int main(int argc, char** argv) {
    bool quick = false;
    std::vector<uint64_t> seeds;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) quick = true;
        else seeds.push_back(strtoull(argv[i], nullptr, 10));
    }
    if (seeds.empty()) seeds = {0};
    const size_t hiddens[] = {1, 2, 3, 7, 31, 32, 33, 64, 111, 128, 500, 1024, 3072, 8192, 16384, 65536};
    const size_t row_counts[] = {1, 3, 19};
    int failed = 0;
    for (const Unit& u : kUnits) {
        Tally tally;
        for (uint64_t seed : seeds) {
            rng_state = 0x9e3779b97f4a7c15ull * (seed + 1);
            unsigned turn = (unsigned)seed;
            for (size_t hidden : hiddens)
                for (size_t rows : row_counts) {
                    if (hidden > 8192 && rows > (hidden > 16384 ? 1 : 3)) continue;
                    if (quick && rows == 19 && hidden > 1024) continue;
                    const Shape layouts[] = {
                        {rows, hidden, 0, 0, 0, 0, false, 1.f, 0.f},    // dense
                        {rows, hidden, 16, 24, 0, 0, true, 30.f, 1.f},  // rows apart by whole vectors
                        {rows, hidden, 3, 3, 1, 9, false, 3.f, 0.f},    // unaligned, but x and y alike
                        {rows, hidden, 1, 4, 5, 2, false, 0.01f, 1.f},  // unaligned, each in its way
                    };
                    for (unsigned i = 0; i < (quick ? 2 : 4); i++) {
                        // The launcher's choice of threads, then fewer and more than that.
                        const uint32_t held = u.vec == 16 ? 4 : 6;
                        const uint32_t accesses = (uint32_t)(hidden * type_of(u.dtype).bytes + u.vec - 1) / u.vec;
                        uint32_t threads = std::min(u.block, (accesses + 32 * held - 1) / (32 * held) * 32);
                        if (turn % 3 == 1) threads = std::min(u.block, threads + 32);
                        if (turn % 3 == 2) threads = std::max(32u, threads / 64 * 32);
                        if (u.rows > 1) threads = u.block;
                        run(u, layouts[(turn + i) % 4], seed, threads, tally);
                    }
                    turn++;
                }
        }
        printf("%-44s %4d cases, worst %.2f of the tolerance  %s\n", u.name, tally.cases, tally.worst,
               tally.failed  ? "FAILED"
               : tally.cases ? "ok"
                             : "NOT RUN");
        failed += tally.failed || !tally.cases;
    }
    return failed != 0;
}
