// Merging attention states: outputs v over disjoint keys with the base-2 logarithms s of their sums of exponentials.
//   m = max s,  w = 2^(s - m),  v = Σ w v / Σ w,  s = m + log2 Σ w,  in f32, states in their order
// A state of weight 0, so every one whose s is -inf, adds nothing, whatever its v holds. If all s are -inf, or there is
// no state, v is 0 and s is -inf. NaN or +inf among the s makes v and s NaN. One state comes out as it went in.
#pragma once
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

PB_FN float log2_fast(float v) {
#if PB_DEVICE
    float r;
    asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
#else
    return log2f(v);
#endif
}
// NaN if one of them is.
PB_FN float max_nan(float a, float b) {
    return a != a || a > b ? a : b;
}
PB_FN float ld_f32(const float* ptr) {
    return bits_of<float>(ld_once<4>(ptr).w[0]);
}
PB_FN void st_f32(float* ptr, float v) {
    st<4>(ptr, {{bits_of<u32>(v)}});
}

template <int kLane> struct Merged {
    float max;
    float sum = 0.f, v[kLane] = {};

    PB_FN float weight(float s) const { return max == -kInf ? 0.f : exp2_fast(s - max); }
    PB_FN void add(float s, const float (&x)[kLane]) {
        const float w = weight(s);
        sum += w;
        if (w == 0.f) return;
#pragma unroll
        for (int j = 0; j < kLane; j++) v[j] += w * x[j];
    }
    PB_FN void finish() {
        const float scale = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
        for (int j = 0; j < kLane; j++) v[j] *= scale;
    }
    PB_FN float lse() const { return max + log2_fast(sum); }
};

// Which head of which row a thread works at. The lanes of a head, a power of two, are within a warp, and take its
// accesses in turn.
struct Place {
    i64 row;
    int group, lane;
    bool exists;
};
template <class P> PB_FN Place place(const P& p) {
    const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 item = index / (u32)p.lanes, row = item / (u32)p.groups;
    return {(i64)row, (int)(item - row * (u32)p.groups), (int)(index & (u32)(p.lanes - 1)), item < p.items};
}

// Two states, a and b, of up to kMergedHeads heads a thread. P has the fields of pb_merge_state_params.
inline constexpr int kMergedHeads = 2;
template <class T, int kVec, class P> PB_FN void merge_pairs(const P& p, const Place& at) {
    constexpr int kLane = kLanes<T, kVec>;
    const int heads = at.exists ? p.heads : 0;
    float sa[kMergedHeads], sb[kMergedHeads];
#pragma unroll
    for (int i = 0; i < kMergedHeads; i++) {
        const i64 head = at.group + i * p.groups;
        sa[i] = sb[i] = 0.f;
        if (head >= heads) continue;
        sa[i] = ld_f32((const float*)p.s_a + at.row * p.s_a_stride + head * p.s_a_head_stride);
        sb[i] = ld_f32((const float*)p.s_b + at.row * p.s_b_stride + head * p.s_b_head_stride);
    }
    // In place, all lanes of a head have read its s before one writes it.
    __syncwarp();
#pragma unroll 1
    for (int unit = at.lane; unit < p.units; unit += p.lanes) {
        words<kVec> a[kMergedHeads], b[kMergedHeads];
#pragma unroll
        for (int i = 0; i < kMergedHeads; i++) {
            const i64 head = at.group + i * p.groups;
            a[i] = b[i] = {};
            if (head >= heads) continue;
            a[i] = ld_once<kVec>((const T*)p.v_a + at.row * p.v_a_stride + head * p.v_a_head_stride + unit * kLane);
            b[i] = ld_once<kVec>((const T*)p.v_b + at.row * p.v_b_stride + head * p.v_b_head_stride + unit * kLane);
        }
#pragma unroll
        for (int i = 0; i < kMergedHeads; i++) {
            const i64 head = at.group + i * p.groups;
            if (head >= heads) break;
            float x[kLane];
            Merged<kLane> merged{max_nan(sa[i], sb[i])};
            unpack<T, kVec>(a[i], x);
            merged.add(sa[i], x);
            unpack<T, kVec>(b[i], x);
            merged.add(sb[i], x);
            merged.finish();
            st<kVec>((T*)p.v + at.row * p.v_stride + head * p.v_head_stride + unit * kLane, pack<T, kVec>(merged.v));
            if (unit == 0) st_f32((float*)p.s + at.row * p.s_stride + head * p.s_head_stride, merged.lse());
        }
    }
}

}  // namespace pb
