// Hopper's kernels on the host target, with barriers, copy engine and wgmma emulated as headers in hopper/ do it: what
// they compute against float64, in several schedules. Where nothing may be written nothing is.
#define PB_EMULATED 1
#include "check.h"
#include "gemm/bmm/hopper_bmm.cuh"
#include "gemm/group_mm/hopper_group_mm.cuh"
#include "moe/moe_gate_up/hopper_gate_up.cuh"
#include "moe/moe_gate_up_quant/hopper_gate_up_quant.cuh"

// Each kernel has a unit of its own name, as the generator would make it.
#define PRODUCT(op, name, T, tile, tall)                                           \
    using name##_shape = HopperShape<T, float, tile, tall>;                        \
    PB_KERNEL(name, pb_##op##_params, name##_shape::kThreads, 1) { hopper_##op<name##_shape>(p); }
#define GATED(op, run, name, T, tile)                                              \
    using name##_shape = HopperGatedShape<T, tile>;                                \
    PB_KERNEL(name, pb_##op##_params, name##_shape::kThreads, 1) { run<name##_shape>(p); }

PRODUCT(bmm, bmm_16, bf16, 16, false)
PRODUCT(bmm, bmm_64, f16, 64, false)
PRODUCT(bmm, bmm_128, bf16, 128, false)
PRODUCT(bmm, bmm_256_tall, f16, 256, true)
PRODUCT(bmm, bmm_32_narrow, e4m3, 32, false)
PRODUCT(bmm, bmm_128_narrow, e4m3, 128, false)
PRODUCT(group_mm, groups_16, f16, 16, false)
PRODUCT(group_mm, groups_64, bf16, 64, false)
PRODUCT(group_mm, groups_128_tall, bf16, 128, true)
PRODUCT(group_mm, groups_256, f16, 256, false)
PRODUCT(group_mm, groups_64_narrow, e4m3, 64, false)
PRODUCT(group_mm, groups_128_narrow, e4m3, 128, false)
GATED(moe_gate_up, hopper_gate_up, gated_16, bf16, 16)
GATED(moe_gate_up, hopper_gate_up, gated_64, f16, 64)
GATED(moe_gate_up, hopper_gate_up, gated_128, bf16, 128)
GATED(moe_gate_up_quant, hopper_gate_up_quant, quant_32, e4m3, 32)
GATED(moe_gate_up_quant, hopper_gate_up_quant, quant_128, e4m3, 128)

template <class T> pb_tensor_map map(const Array<T>& a, i64 inner, i64 outer, i64 matrices, i64 rows) {
    const u64 bytes = sizeof(T), row = (u64)inner * bytes;
    return {{(u64)a.data(), bytes, (u64)inner, (u64)outer, (u64)matrices, row, row * (u64)outer, (u64)rows}};
}
// Of weights [matrices, n, k], or [matrices, k, n].
template <class S, class T> pb_tensor_map map_of_b(const Array<T>& b, i64 n, i64 k, i64 matrices) {
    return S::kTall ? map(b, n, k, matrices, 64) : map(b, k, n, matrices, S::kOfB);
}

template <class S> void bmm(Kernel* kernel, u64 seed) {
    using T = typename S::T;
    const int step = 16 / (int)sizeof(T), k = step * between(1, 30), batch = between(1, 2), m = between(1, 150);
    const int n = S::kTall ? 8 * between(1, 40) : between(1, 300), blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
    const Array<T> a((i64)batch * m * k, unit), b((i64)batch * n * k, unit);
    const Array<float> out((i64)batch * m * n, untouched), bias(n, unit);
    const Array<float> a_scale((i64)batch * m * blocks, factor), b_scale((i64)batch * n_blocks * blocks, factor);
    const bool by_block = S::kNarrow && blocks > 1 && n_blocks > 1;
    pb_bmm_params p = {};
    p.a_map = map(a, k, m, batch, S::kOfA), p.b_map = map_of_b<S>(b, n, k, batch);
    p.out = out.data(), p.out_batch = (i64)m * n * 4, p.out_row = n * 4, p.bias = bias.data();
    p.m = m, p.n = n, p.k = k, p.batch = batch, p.wide = n % 4 == 0, p.activation = kRelu;
    p.m_tiles = (m + S::kOfA - 1) / S::kOfA, p.n_tiles = (n + S::kOfB - 1) / S::kOfB;
    if (by_block) {
        p.a_scale = a_scale.data(), p.a_scale_batch = (i64)m * blocks, p.a_scale_row = blocks, p.a_scale_k = 1;
        p.b_scale = b_scale.data(), p.b_scale_batch = (i64)n_blocks * blocks, p.b_scale_row = blocks, p.b_scale_k = 1;
        p.b_scale_shift = 7;
    }
    const int all = (k + S::kDepth - 1) / S::kDepth, pieces = S::kSplits ? between(1, 3) : 1;
    p.stages = (all + pieces - 1) / pieces, p.splits = (all + p.stages - 1) / p.stages;
    const i64 tiles = (i64)batch * p.m_tiles * p.n_tiles;
    const Array<float> partial(tiles * p.splits * S::kRows * S::kColumns, unit);
    const Array<i32> tickets(tiles, [] { return 0; });
    p.partial = partial.data(), p.tickets = tickets.data();
    if (!launch<S>(kernel, p, seed, between(1, 3))) return;
    for (i64 z = 0; z < batch; z++)
        for (i64 r = 0; r < m; r++)
            for (i64 c = 0; c < n; c++) {
                double sum = 0;
                for (i64 i = 0; i < k; i++) {
                    double by = 1;
                    if (by_block) {
                        const i64 block = i / 128;
                        by = a_scale[(z * m + r) * blocks + block] * b_scale[(z * n_blocks + c / 128) * blocks + block];
                    }
                    sum += by * a[(z * m + r) * k + i] * b[z * n * k + (S::kTall ? i * n + c : c * k + i)];
                }
                compare("bmm", z * m + r, c, out[(z * m + r) * n + c], std::max(0.0, sum + bias[c]), 1e-3);
            }
    for (i64 i = 0; i < tiles; i++) wrong += tickets[i] != 0;
}

// Where groups begin; some have no rows, and a few rows belong to none.
static std::vector<i32> ends(int groups, int most) {
    std::vector<i32> at = {0};
    for (int g = 0; g < groups; g++) at.push_back(at.back() + (below(4) ? below(most / 6) : below(2) ? below(most) : 0));
    return at;
}

template <class S> void group_mm(Kernel* kernel, u64 seed) {
    using T = typename S::T;
    const int step = 16 / (int)sizeof(T), k = step * between(1, 30), groups = between(1, 35), matrices = groups + 1;
    const int n = S::kTall ? 8 * between(1, 40) : between(1, 300), blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
    const bool by_length = below(3) == 0;
    const int most = between(1, 30);
    std::vector<i32> at = ends(groups, 120), lengths, weights;
    for (int g = 0; g < groups; g++) lengths.push_back(below(most + 1)), weights.push_back(below(matrices + 1));
    const int m = by_length ? most * groups : at.back() + 3;
    const Array<T> a((i64)m * k, unit), b((i64)matrices * n * k, unit);
    const Array<float> out((i64)m * n, untouched), bias((i64)matrices * n, unit), a_scale((i64)m * blocks, factor);
    const Array<float> b_scale((i64)matrices * n_blocks * blocks, factor);
    const bool by_block = S::kNarrow && blocks > 1 && n_blocks > 1;
    pb_group_mm_params p = {};
    p.a_map = map(a, k, m, 1, S::kOfA), p.b_map = map_of_b<S>(b, n, k, matrices);
    p.out = out.data(), p.out_row = n * 4, p.bias = bias.data(), p.bias_group = n;
    p.indptr = by_length ? nullptr : at.data(), p.lengths = by_length ? lengths.data() : nullptr, p.weights = weights.data();
    p.m = p.tokens = m, p.n = n, p.k = k, p.groups = groups, p.matrices = matrices, p.most = most;
    p.n_tiles = (n + S::kOfB - 1) / S::kOfB, p.wide = n % 4 == 0;
    if (by_block) {
        p.a_scale = a_scale.data(), p.a_scale_row = blocks, p.a_scale_k = 1;
        p.b_scale = b_scale.data(), p.b_scale_group = (i64)n_blocks * blocks, p.b_scale_row = blocks, p.b_scale_k = 1;
        p.b_scale_shift = 7;
    }
    if (!launch<S>(kernel, p, seed, between(1, 3))) return;
    std::vector<int> matrix(m, matrices);
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < (by_length ? lengths[g] : at[g + 1] - at[g]); i++)
            matrix[(by_length ? g * most : at[g]) + i] = weights[g];
    for (i64 r = 0; r < m; r++)
        for (i64 c = 0; c < n; c++) {
            double sum = untouched();
            if (const i64 of = matrix[r]; of < matrices) {
                sum = bias[of * n + c];
                for (i64 i = 0; i < k; i++) {
                    double by = 1;
                    if (by_block) by = a_scale[r * blocks + i / 128] * b_scale[(of * n_blocks + c / 128) * blocks + i / 128];
                    sum += by * a[r * k + i] * b[of * n * k + (S::kTall ? i * n + c : c * k + i)];
                }
            }
            compare("group_mm", r, c, out[r * n + c], sum, 1e-3);
        }
}

static double activated(int kind, double gate, double up, double limit) {
    if (kind == 3) gate = std::min(gate, limit), up = std::clamp(up, -limit, limit) + 1;
    switch (kind) {
        case 0: return gate / (1 + std::exp(-gate)) * up;
        case 1: return gate * std::erfc(-gate / std::sqrt(2.0)) / 2 * up;
        case 2: return gate / (1 + std::exp(-1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))) * up;
        default: return gate / (1 + std::exp(-1.702 * gate)) * up;
    }
}

template <class S> void gated(Kernel* kernel, u64 seed) {
    using T = typename S::T;
    using P = std::conditional_t<S::kNarrow, pb_moe_gate_up_quant_params, pb_moe_gate_up_params>;
    const int step = 16 / (int)sizeof(T), k = step * between(1, 30), experts = between(1, 12), tokens = between(1, 50);
    const int inner = S::kNarrow ? 128 * between(1, 2) : between(1, 200), blocks = (k + 127) / 128, w_blocks = inner / 64;
    const std::vector<i32> at = ends(experts, 100);
    const int m = at.back() + 3;
    std::vector<i32> rows(m);
    for (i32& row : rows) row = below(8) ? below(tokens) : below(2) * (tokens + 1) - 1;
    const Array<T> x((i64)tokens * k, unit), w((i64)experts * 2 * inner * k, unit), bias((i64)experts * 2 * inner, unit);
    const Array<T> out((i64)m * inner, untouched);
    const Array<float> x_scale((i64)tokens * blocks, factor), w_scale((i64)experts * w_blocks * blocks, factor);
    const Array<float> scale((i64)m * inner / 128 + 1, untouched);
    P p = {};
    p.w_map = map(w, k, 2 * inner, experts, 128);
    p.x = x.data(), p.w = w.data(), p.indptr = at.data(), p.rows = rows.data(), p.out = out.data();
    p.x_row = k * (int)sizeof(T), p.out_row = inner * (int)sizeof(T), p.m = m, p.groups = experts, p.tokens = tokens;
    p.n_tiles = (inner + 127) / 128, p.hidden = k, p.inner = inner, p.activation = below(4), p.limit = 2.f;
    if constexpr (S::kNarrow) {
        p.x_scale = x_scale.data(), p.x_scale_row = blocks, p.x_scale_k = 1, p.eps = 1e-10f;
        p.w_scale = w_scale.data(), p.w_scale_expert = w_blocks * blocks, p.w_scale_row = blocks, p.w_scale_k = 1;
        p.scale = scale.data(), p.scale_row = inner / 128, p.scale_group = 1;
    } else {
        p.bias = bias.data(), p.bias_expert = 2 * inner * (int)sizeof(T), p.wide = inner % 4 == 0;
    }
    if (!launch<S>(kernel, p, seed, between(1, 3))) return;
    std::vector<int> expert(m, -1);
    for (int e = 0; e < experts; e++) std::fill(expert.begin() + at[e], expert.begin() + at[e + 1], e);
    for (i64 r = 0; r < m; r++) {
        const i64 e = expert[r], token = rows[r];
        const bool none = e < 0 || token < 0 || token >= tokens;
        std::vector<double> h(inner, untouched());
        for (i64 c = 0; c < inner && !none; c++) {
            double sums[2];
            for (int set = 0; set < 2; set++) {
                const i64 row = e * 2 * inner + set * inner + c;
                sums[set] = S::kNarrow ? 0 : bias[row];
                for (i64 i = 0; i < k; i++) {
                    double by = 1;
                    if (S::kNarrow) by = x_scale[token * blocks + i / 128] * w_scale[row / 128 * blocks + i / 128];
                    sums[set] += by * x[token * k + i] * w[row * k + i];
                }
            }
            h[c] = activated(p.activation, sums[0], sums[1], p.limit);
        }
        for (i64 g = 0; S::kNarrow && g < inner / 128; g++) {
            double top = 1e-10;
            for (i64 c = 0; c < 128; c++) top = std::max(top, std::fabs(h[g * 128 + c]));
            const double s = none ? untouched() : top / 448;
            compare("scale", r, g, scale[r * (inner / 128) + g] / s, 1, 1e-4);
            // A step of e4m3 is an eighth at most.
            for (i64 c = g * 128; c < g * 128 + 128; c++) {
                const double want = none ? untouched() : h[c] / s;
                compare("out", r, c, out[r * inner + c], want, none ? 0 : std::fabs(want) / 15 + 1e-2);
            }
        }
        for (i64 c = 0; !S::kNarrow && c < inner; c++)
            compare("out", r, c, out[r * inner + c], h[c], none ? 0 : std::fabs(h[c]) / 100 + 1e-2);
    }
}

#define TEST(op, name) {#name, op<name##_shape>, name}
static const Test kTests[] = {
    TEST(bmm, bmm_16), TEST(bmm, bmm_64), TEST(bmm, bmm_128), TEST(bmm, bmm_256_tall), TEST(bmm, bmm_32_narrow),
    TEST(bmm, bmm_128_narrow), TEST(group_mm, groups_16), TEST(group_mm, groups_64), TEST(group_mm, groups_128_tall),
    TEST(group_mm, groups_256), TEST(group_mm, groups_64_narrow), TEST(group_mm, groups_128_narrow),
    TEST(gated, gated_16), TEST(gated, gated_64), TEST(gated, gated_128), TEST(gated, quant_32), TEST(gated, quant_128),
};

int main(int count, char** arguments) {
    return run_all(kTests, count, arguments);
}
