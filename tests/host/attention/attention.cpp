// Runs the attention fixture on the host target and compares it with a float64 reference. usage: attention [SEED ...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "attention/params.h"
#include "host/pb_host.h"

extern "C" {
typedef int entry_fn(pb_host_launch*, const void*, char*, size_t);
entry_fn attention_bf16_d64, attention_f16_d128_causal;
}
using namespace pb::host;
static std::mt19937 rng(1);
static float normal() {
    return std::normal_distribution<float>()(rng);
}
struct Half {
    uint16_t (*to)(float);
    float (*from)(uint16_t);
    std::vector<uint16_t> random(size_t n, float scale = 1) const {
        std::vector<uint16_t> v(n);
        for (auto& x : v) x = to(scale * normal());
        return v;
    }
};
static const Half kHalf[2] = {{f32_to_bf16, bf16_to_f32}, {f32_to_f16, f16_to_f32}};
static int failures = 0;
static void worse(double& err, double e) {
    if (err == err && !(e <= err)) err = e;
}  // a NaN counts and stays; fmax would drop it
static bool launch(entry_fn* f, pb_host_launch l, const void* p) {
    char err[2048] = "";
    if (!f(&l, p, err, sizeof err)) return true;
    printf("FAILED: %s\n", err);
    failures++;
    return false;
}
static void report(const char* what, double err, double tol) {
    printf("%-44s max err %.2e (tolerance %.0e)  %s\n", what, err, tol, err <= tol ? "ok" : "FAILED");
    if (!(err <= tol)) failures++;
}
static void attention(entry_fn* f, int type, int d, int batch, int hq, int hk, int sq, int skv, bool causal,
                      uint64_t seed, uint32_t jobs = 0) {
    const Half& h = kHalf[type];
    auto q = h.random((size_t)batch * hq * sq * d), k = h.random((size_t)batch * hk * skv * d), v = h.random(k.size());
    std::vector<uint16_t> o(q.size(), 0xffff);
    std::vector<float> lse((size_t)batch * hq * sq, NAN);
    const double scale = 1 / sqrt((double)d);
    pb_attention_params p{q.data(),
                          k.data(),
                          v.data(),
                          o.data(),
                          lse.data(),
                          (int64_t)hq * sq * d,
                          (int64_t)sq * d,
                          d,
                          (int64_t)hk * skv * d,
                          (int64_t)skv * d,
                          d,
                          (int64_t)hq * sq * d,
                          (int64_t)sq * d,
                          d,
                          hq,
                          hk,
                          sq,
                          skv,
                          (float)(scale * M_LOG2E)};
    pb_host_launch l{{(uint32_t)(sq + 63) / 64, (uint32_t)hq, (uint32_t)batch},
                     {128, 1, 1},
                     (uint64_t)(64 * d * 2 + 4 * 64 * d * 2),
                     0,
                     jobs,
                     seed,
                     0,
                     0};
    if (!launch(f, l, &p)) return;
    double err = 0, err_lse = 0;
    std::vector<double> s(skv), acc(d);
    for (int b = 0; b < batch; b++)
        for (int hd = 0; hd < hq; hd++)
            for (int i = 0; i < sq; i++) {
                const uint16_t* qr = &q[(((size_t)b * hq + hd) * sq + i) * d];
                const size_t kv = ((size_t)b * hk + hd / (hq / hk)) * skv * d;
                const int end = causal ? std::min(skv, i + 1 + skv - sq) : skv;
                double mx = -INFINITY, sum = 0;
                for (int j = 0; j < end; j++) {
                    s[j] = 0;
                    for (int e = 0; e < d; e++) s[j] += (double)h.from(qr[e]) * h.from(k[kv + (size_t)j * d + e]);
                    s[j] *= scale;
                    mx = fmax(mx, s[j]);
                }
                std::fill(acc.begin(), acc.end(), 0);
                for (int j = 0; j < end; j++) {
                    const double e = exp(s[j] - mx);
                    sum += e;
                    for (int c = 0; c < d; c++) acc[c] += e * h.from(v[kv + (size_t)j * d + c]);
                }
                for (int c = 0; c < d; c++) {
                    const double y = sum > 0 ? acc[c] / sum : 0,
                                 g = h.from(o[(((size_t)b * hq + hd) * sq + i) * d + c]);
                    worse(err, fabs(g - y));
                }
                const double L = sum > 0 ? mx + log(sum) : -INFINITY, gl = lse[((size_t)b * hq + hd) * sq + i];
                if (sum > 0) worse(err_lse, fabs(gl - L));
                else if (gl != -INFINITY) err_lse = NAN;
            }
    char what[80];
    snprintf(what, sizeof what, "attention %s B%d H%d/%d Sq%d Skv%d D%d%s j%u", type ? "f16" : "bf16", batch, hq, hk,
             sq, skv, d, causal ? " causal" : "", jobs);
    worse(err, err_lse);
    report(what, err, type ? 3e-3 : 2e-2);
}
int main(int argc, char** argv) {
    std::vector<uint64_t> seeds{0};
    if (argc > 1) {
        seeds.clear();
        for (int i = 1; i < argc; i++) seeds.push_back(strtoull(argv[i], nullptr, 10));
    }
    for (uint64_t s : seeds) {
        printf("schedule %llu (%s)\n", (unsigned long long)s, s == 0 ? "in order" : s == 1 ? "reverse" : "random");
        attention(attention_bf16_d64, 0, 64, 1, 4, 4, 64, 128, false, s);
        attention(attention_bf16_d64, 0, 64, 2, 4, 2, 100, 200, false, s);
        attention(attention_bf16_d64, 0, 64, 1, 8, 2, 256, 512, false, s, 2);
        attention(attention_f16_d128_causal, 1, 128, 1, 4, 1, 130, 190, true, s);
        attention(attention_f16_d128_causal, 1, 128, 1, 2, 1, 65, 40, true, s);
    }
    printf("%s\n", failures ? "FAILED" : "all ok");
    return failures != 0;
}
