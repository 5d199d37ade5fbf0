// Bytes to bits.
#pragma once
#include "parbake/vec.cuh"

namespace pb {

// Four bytes to four bits: bit i, or bit 3 - i, says whether byte i is not 0.
PB_FN u32 bits_of_bytes(u32 w, bool little) {
    const u32 any = ((((w & 0x7f7f7f7fu) + 0x7f7f7f7fu) | w) >> 7) & 0x01010101u;
    // The product moves each to its place above bit 24 and lets no two meet.
    return any * (little ? 0x01020408u : 0x08040201u) >> 24 & 15u;
}
// Eight bytes to a byte.
PB_FN u32 bits_of_bytes(u32 lo, u32 hi, bool little) {
    const u32 a = bits_of_bytes(lo, little), b = bits_of_bytes(hi, little);
    return little ? a | b << 4 : a << 4 | b;
}
// The same of `count` bytes, 0 beyond them.
PB_FN u32 bits_of_some(const u8* x, i64 count, bool little) {
    u32 r = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count && ld_nc<1>(x + i).w[0]) r |= little ? 1u << i : 128u >> i;
    return r;
}

}  // namespace pb
