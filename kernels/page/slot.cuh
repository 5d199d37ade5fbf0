// Where a token goes in a paged cache.
#pragma once
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

PB_FN i32 ld_i32(const void* array, i64 i) {
    return (i32)ld_nc<4>((const i32*)array + i).w[0];
}

// A place in a page, or none: page is negative.
struct Slot {
    i64 page;
    i64 entry;
};

// Of a token at position n of request b: entry n % page_size of page indices[indptr[b] + n / page_size]. Whatever does
// not exist leads to no slot: a negative batch index, position or page, and those past the end. P has batch_indices,
// positions, kv_indices, kv_indptr, page_size, batch, pages, and the number of kv_indices.
template <class P> PB_FN Slot slot(const P& p, i64 token) {
    constexpr Slot kNone = {-1, 0};
    const i32 request = ld_i32(p.batch_indices, token), position = ld_i32(p.positions, token);
    if (request < 0 || request >= p.batch || position < 0) return kNone;
    const i32 n = position / p.page_size;
    const i64 i = (i64)ld_i32(p.kv_indptr, request) + n;
    if (i < 0 || i >= ld_i32(p.kv_indptr, request + 1) || i >= p.kv_pages) return kNone;
    const i32 page = ld_i32(p.kv_indices, i);
    if (page < 0 || page >= p.pages) return kNone;
    return {page, position - n * p.page_size};
}

}  // namespace pb
