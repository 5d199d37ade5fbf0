// Tiles between global and shared memory by the copy engine (cp.async.bulk.tensor, sm_90). Device code only.
//
// A tile is a box of a tensor that a map describes: the launcher says what it is (binding::TensorMap), the library
// encodes it, the kernel has it in its parameters. What a box has beyond the tensor's end is zero when it is loaded and
// not written when it is stored; a load counts as the whole box in either case.
#pragma once
#include "parbake/abi.h"
#include "parbake/mbarrier.cuh"

#if PB_DEVICE
namespace pb {

PB_FN void tma_prefetch(const pb_tensor_map& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// The innermost coordinate comes first. `bar` expects the bytes.
PB_FN void tma_load(Shared to, const pb_tensor_map& map, Shared bar, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
                     "r"(to.at), "l"(&map), "r"(bar.at), "r"(x), "r"(y)
                 : "memory");
}
PB_FN void tma_load(Shared to, const pb_tensor_map& map, Shared bar, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
                     "r"(to.at), "l"(&map), "r"(bar.at), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
// To the same place of every block of the cluster that `blocks` has a bit of, and counted by each one's barrier.
PB_FN void tma_load(Shared to, const pb_tensor_map& map, Shared bar, int x, int y, int z, u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
        "%4, %5}], [%2], %6;" ::"r"(to.at),
        "l"(&map), "r"(bar.at), "r"(x), "r"(y), "r"(z), "h"(blocks)
        : "memory");
}
PB_FN void tma_store(const pb_tensor_map& map, Shared from, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                 "r"(from.at), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
PB_FN void tma_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// At most kGroups of this thread's stores have not read their tiles yet.
template <int kGroups> PB_FN void tma_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
// What this thread wrote to shared memory is there for the copy engine and for wgmma; a barrier comes after it.
PB_FN void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace pb
#endif
