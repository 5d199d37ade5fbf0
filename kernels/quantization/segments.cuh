// Access to begins of segments, of 32 or 64 bits.
#pragma once
#include "parbake/vec.cuh"

namespace pb {

PB_FN i64 load_index(const i32* ptr) {
    return (i32)ld_nc<4>(ptr).w[0];
}
PB_FN i64 load_index(const i64* ptr) {
    const words<8> v = ld_nc<8>(ptr);
    return (i64)(v.w[0] | (u64)v.w[1] << 32);
}

}  // namespace pb
