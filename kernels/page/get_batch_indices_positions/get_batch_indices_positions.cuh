// Request and position of appended tokens. params.h is the contract.
#pragma once
#include "page/get_batch_indices_positions/params.h"
#include "page/slot.cuh"

namespace pb {

PB_FN void get_batch_indices_positions(const pb_get_batch_indices_positions_params& p) {
    const i64 t = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= p.nnz) return;
    // The first request that ends behind the token: those without tokens end where they begin.
    int low = 0, high = p.batch;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (ld_i32(p.append_indptr, middle + 1) <= t) low = middle + 1;
        else high = middle;
    }
    const bool found = low < p.batch && ld_i32(p.append_indptr, low) <= t;
    const i32 position = found ? (i32)t - ld_i32(p.append_indptr, low + 1) + ld_i32(p.seq_lens, low) : -1;
    st<4>((i32*)p.batch_indices + t, {{found ? (u32)low : ~0u}});
    st<4>((i32*)p.positions + t, {{(u32)position}});
}

}  // namespace pb
