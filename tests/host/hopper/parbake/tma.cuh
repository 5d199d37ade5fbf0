// The copy engine of parbake/tma.cuh on the host target. A map is the description that a launcher left in its place:
// address, bytes of an element, three extents, strides of rows and of matrices, rows of a box.
#pragma once
#include "parbake/abi.h"
#include "parbake/mbarrier.cuh"

namespace pb {

inline void tma_prefetch(const pb_tensor_map&) {}
inline void tma_load(Shared to, const pb_tensor_map& map, Shared bar, int x, int y, int z PB_AT) {
    constexpr i64 kLine = 128, kChunk = 16;
    const u8* const data = (const u8*)map.words[0];
    const i64 bytes = (i64)map.words[1], columns = (i64)map.words[2], rows = (i64)map.words[3], matrices = (i64)map.words[4];
    const i64 row = (i64)map.words[5], matrix = (i64)map.words[6], height = (i64)map.words[7];
    host::check_access(to.at, kLine, "destination of a box", at);
    if (!host::in_shared(to.at, height * kLine)) host::fail(at, "box at %p is outside shared memory", (void*)to.at);
    for (i64 r = 0; r < height; r++)
        for (i64 i = 0; i < kLine; i += bytes) {
            // The swizzle is one of addresses, whatever begins there.
            __UINTPTR_TYPE__ place = (__UINTPTR_TYPE__)to.at + r * kLine + i;
            place ^= (place / kLine % 8) * kChunk;
            const i64 column = x + i / bytes;
            const bool there = column >= 0 && column < columns && y + r >= 0 && y + r < rows && z >= 0 && z < matrices;
            for (i64 b = 0; b < bytes; b++)
                ((u8*)place)[b] = there ? data[z * matrix + (y + r) * row + column * bytes + b] : 0;
        }
    host::preempt();
    mbarrier(bar, at).count(-(i32)(height * kLine));
}
inline void fence_async() {}

}  // namespace pb
