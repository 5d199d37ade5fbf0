// Factors of 8-bit operands that change along k: one for each block of 128 elements.
#pragma once
#include "gemm/shape.cuh"

namespace pb {

// Null where there are none. Those that do not change along k are for the end, where they cost nothing.
template <class S> struct BlockScales {
    const float *a, *b;  // of block 0
    i64 a_step, b_step;  // from block to block
    int a_at[S::kM][2];  // of the thread's rows

    PB_FN void get(int block, float (&f)[S::kM][2]) const {
        const float all = b ? bits_of<float>(ld_nc<4>(b + block * b_step).w[0]) : 1.f;
        const float* from = a + block * a_step;
#pragma unroll
        for (int m = 0; m < S::kM; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) f[m][h] = a ? bits_of<float>(ld_nc<4>(from + a_at[m][h]).w[0]) * all : all;
    }
};

}  // namespace pb
