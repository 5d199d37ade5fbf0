// Attention of many queries as Hopper does it, on the host target: after the plan that the op for it makes there, against
// float64. See hopper.cpp.
#define PB_EMULATED 1
#include "check.h"
#include "attention/attention_plan/attention_plan.cuh"
#include "attention/batch_attention/hopper_attention.cuh"

PB_KERNEL(plan, pb_attention_plan_params, 128) { attention_plan<128>(p); }

using half_shape = HopperTile<f16, 128>;
using brain_shape = HopperTile<bf16, 128>;
PB_KERNEL(half, pb_batch_attention_params, half_shape::kThreads, 1) { hopper_attention<half_shape>(p); }
PB_KERNEL(brain, pb_batch_attention_params, brain_shape::kThreads, 1) { hopper_attention<brain_shape>(p); }

struct PlanShape {
    static constexpr int kThreads = 128, kShared = 0;
};

// As the launcher makes them of a divisor.
static void divide_by(unsigned by, u32& multiply, i32& shift) {
    multiply = 0, shift = 0;
    if (by == 1) return;
    const int bits = 32 - __builtin_clz(by - 1);
    multiply = (u32)(((1ull << (31 + bits)) + by - 1) / by), shift = bits - 1;
}

template <class S> void attention(Kernel* kernel, u64 seed) {
    using T = typename S::T;
    constexpr int kDim = S::kDim;
    const int requests = between(1, 4), kv_heads = between(1, 2), group = between(1, 4), heads = kv_heads * group;
    const int page_size = between(1, 3) == 1 ? 1 : between(2, 40), blocks = between(1, 4), split = below(3);
    std::vector<i32> qo = {0}, kv = {0}, last;
    for (int b = 0; b < requests; b++) {
        const int keys = below(5) ? between(1, 500) : 0, pages = (keys + page_size - 1) / page_size;
        qo.push_back(qo.back() + (below(4) ? between(1, 90) : 0));
        kv.push_back(kv.back() + pages);
        last.push_back(pages ? keys - (pages - 1) * page_size : 0);
    }
    const int tokens = qo.back(), kv_pages = kv.back(), pages = kv_pages + 2;
    if (tokens == 0) return;
    std::vector<i32> page(kv_pages);
    for (i32& at : page) at = below(pages);
    const i64 of_page = (i64)page_size * kv_heads * kDim;
    const Array<T> q((i64)tokens * heads * kDim, unit), k(pages * of_page, unit), v(pages * of_page, unit);
    const Array<T> o((i64)tokens * heads * kDim, untouched);
    const Array<float> lse((i64)tokens * heads, untouched), sinks(heads, unit);
    const bool causal = below(2) != 0, with_sinks = below(2) != 0;
    const int window = below(3) ? -1 : between(0, 200), capacity = tokens * group / 128 + requests;
    const Array<i32> words(16 + 4 * (blocks + 1) + 12 * capacity + std::max(capacity * kv_heads, blocks), [] { return 0; });
    const i64 slots = 2 * blocks + (split ? below(200) : 0);
    const Array<float> partial(slots * 128 * (kDim + 1), unit);

    pb_attention_plan_params made = {};
    made.plan = words.data(), made.qo_indptr = qo.data(), made.kv_indptr = kv.data(), made.kv_last_page_len = last.data();
    made.batch = requests, made.page_size = page_size, made.group = group, made.kv_heads = kv_heads, made.rows = 128;
    made.keys = S::kPlan, made.blocks = blocks, made.split = split, made.capacity = capacity, made.causal = causal;
    made.window = window;
    if (!launch<PlanShape>(plan, made, seed, 1)) return;

    pb_batch_attention_params p = {};
    p.o = o.data(), p.lse = lse.data(), p.q = q.data(), p.k = k.data(), p.v = v.data(), p.plan = words.data();
    p.partial = partial.data(), p.kv_indices = page.data(), p.sinks = with_sinks ? sinks.data() : nullptr;
    p.o_head_stride = p.q_head_stride = p.k_head_stride = p.v_head_stride = kDim * 2;
    p.o_stride = p.q_stride = heads * kDim * 2, p.lse_stride = heads * 4;
    p.k_stride = p.v_stride = (u32)of_page * 2, p.k_entry_stride = p.v_entry_stride = (u32)(kv_heads * kDim * 2);
    p.kv_pages = kv_pages, p.pages = pages, p.slots = slots, p.tokens = tokens, p.page_size = page_size, p.group = group;
    p.kv_heads = kv_heads, p.causal = causal, p.window = window, p.scale_log2 = kLog2E / 8, p.v_scale = 0.5f;
    divide_by((unsigned)page_size, p.page_multiply, p.page_shift);
    divide_by((unsigned)group, p.group_multiply, p.group_shift);
    if (!launch<S>(kernel, p, seed, blocks)) return;

    for (int b = 0; b < requests; b++) {
        const int queries = qo[b + 1] - qo[b], has = kv[b + 1] - kv[b], keys = has ? (has - 1) * page_size + last[b] : 0;
        const Span span = {queries, keys};
        for (int i = 0; i < queries; i++)
            for (int head = 0; head < heads; head++) {
                const i64 row = (i64)(qo[b] + i) * heads + head;
                const auto at = [&](int key) {
                    const i64 entry = (i64)page[kv[b] + key / page_size] * page_size + key % page_size;
                    return (entry * kv_heads + head / group) * kDim;
                };
                std::vector<double> out(kDim);
                double sum = with_sinks ? std::exp(sinks[head]) : 0;
                for (int key = span.first(i, window); key < span.end(i, causal); key++) {
                    double score = 0;
                    for (int d = 0; d < kDim; d++) score += q[row * kDim + d] * k[at(key) + d];
                    const double weight = std::exp(score / 8);
                    sum += weight;
                    for (int d = 0; d < kDim; d++) out[d] += weight * v[at(key) + d];
                }
                for (int d = 0; d < kDim; d++) compare("o", row, d, o[row * kDim + d], sum > 0 ? out[d] / sum / 2 : 0, 6e-3);
                if (sum > 0) compare("lse", row, head, lse[row], std::log2(sum), 1e-3);
                else wrong += lse[row] > -1e30;
            }
    }
    const i64 tickets = PlanLayout::tickets(blocks, capacity);
    for (i64 i = tickets; i < tickets + blocks; i++) wrong += words[i] != 0;
}

static const Test kTests[] = {{"half", attention<half_shape>, half}, {"brain", attention<brain_shape>, brain}};

int main(int count, char** arguments) {
    return run_all(kTests, count, arguments);
}
