// An activation of the first half of each row times its second half. params.h is the contract.
#pragma once
#include "activation/act_and_mul/params.h"
#include "activation/activation.cuh"

namespace pb {

// Accesses are counted through all rows, so that every thread but the last has as many, whatever the rows' length. A
// thread takes kSteps of them: 64 bytes in flight at full width.
template <class T, int kActivation, int kBlock, int kVec> PB_FN void act_and_mul(const pb_act_and_mul_params& p) {
    constexpr int kLane = kLanes<T, kVec>, kSteps = kVec == 16 ? 2 : kVec == 8 ? 4 : 8;
    constexpr u32 kTake = kBlock * kSteps;  // accesses of a block
    // As many blocks as a row has parts take kTake rows: numbers within them have 32 bits.
    const u32 batch = quotient(blockIdx.x, p.magic, p.shift);
    const u32 first = (blockIdx.x - batch * p.parts) * kTake + threadIdx.x;
    words<kVec> gate[kSteps], up[kSteps];
    T* out[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
        const u32 n = first + i * kBlock, r = quotient(n, p.magic, p.shift);
        const u32 column = (n - r * p.parts) * kLane;
        const i64 row = (i64)batch * kTake + r;
        out[i] = row < p.rows ? (T*)p.out + row * p.out_stride + column : nullptr;
        if (out[i]) {
            const T* x = (const T*)p.x + row * p.x_stride + column;
            gate[i] = ld<kVec>(x);
            up[i] = ld<kVec>(x + p.hidden);
        }
    }
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
        if (!out[i]) break;
        float x[kLane], y[kLane];
        unpack<T, kVec>(gate[i], x);
        unpack<T, kVec>(up[i], y);
#pragma unroll
        for (int j = 0; j < kLane; j++) x[j] = act_and_mul<kActivation>(x[j], y[j]);
        st<kVec>(out[i], pack<T, kVec>(x));
    }
}

}  // namespace pb
