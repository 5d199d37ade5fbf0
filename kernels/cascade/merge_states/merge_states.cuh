// Any number of attention states made one. params.h is the contract.
#pragma once
#include "cascade/merge.cuh"
#include "cascade/merge_states/params.h"

namespace pb {

// A thread takes accesses of one head; the loads of four states are under way together.
template <class T, int kVec> PB_FN void merge_states(const pb_merge_states_params& p) {
    constexpr int kLane = kLanes<T, kVec>, kHeld = 4;
    const Place at = place(p);
    if (!at.exists) return;
    const T* v = (const T*)p.v + at.row * p.v_stride + at.group * p.v_head_stride;
    const float* s = (const float*)p.s + at.row * p.s_stride + at.group * p.s_head_stride;
    float max = -kInf;
#pragma unroll 1
    for (int first = 0; first < p.states; first += kHeld) {
#pragma unroll
        for (int i = 0; i < kHeld; i++) {
            const i64 state = first + i;
            if (state < p.states) max = max_nan(max, bits_of<float>(ld_nc<4>(s + state * p.s_state_stride).w[0]));
        }
    }
#pragma unroll 1
    for (int unit = at.lane; unit < p.units; unit += p.lanes) {
        Merged<kLane> merged{max};
#pragma unroll 1
        for (int first = 0; first < p.states; first += kHeld) {
            words<kVec> x[kHeld];
            float e[kHeld];
#pragma unroll
            for (int i = 0; i < kHeld; i++) {
                const i64 state = first + i;
                x[i] = {};
                e[i] = -kInf;
                if (state >= p.states) continue;
                x[i] = ld_nc<kVec>(v + state * p.v_state_stride + unit * kLane);
                e[i] = bits_of<float>(ld_nc<4>(s + state * p.s_state_stride).w[0]);
            }
#pragma unroll
            for (int i = 0; i < kHeld; i++) {
                float f[kLane];
                unpack<T, kVec>(x[i], f);
                merged.add(e[i], f);
            }
        }
        merged.finish();
        T* to = (T*)p.v_merged + at.row * p.v_merged_stride + at.group * p.v_merged_head_stride;
        st<kVec>(to + unit * kLane, pack<T, kVec>(merged.v));
        if (unit == 0) {
            float* lse = (float*)p.s_merged + at.row * p.s_merged_stride + at.group * p.s_merged_head_stride;
            st_f32(lse, merged.lse());
        }
    }
}

}  // namespace pb
