// Tokens of each request of a paged cache. params.h is the contract.
#pragma once
#include "page/get_seq_lens/params.h"
#include "page/slot.cuh"

namespace pb {

PB_FN void get_seq_lens(const pb_get_seq_lens_params& p) {
    const i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= p.batch) return;
    const i32 full = ld_i32(p.kv_indptr, b + 1) - ld_i32(p.kv_indptr, b) - 1;
    const i32 tokens = (full > 0 ? full : 0) * p.page_size + ld_i32(p.kv_last_page_len, b);
    st<4>((i32*)p.seq_lens + b, {{(u32)tokens}});
}

}  // namespace pb
