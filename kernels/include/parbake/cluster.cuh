// Clusters of blocks that read and write each other's shared memory (sm_90). Before, and on the host target, a cluster
// is one block. Only x has clusters: the blocks of one are neighbours in grid x.
//
// Nobody may touch the shared memory of a block that has not begun or that has ended: the kernel calls cluster_sync()
// before its first access and again after its last one.
#pragma once
#include "parbake/types.cuh"

#if PB_DEVICE && __CUDA_ARCH__ >= 900
#define PB_CLUSTERS 1
#else
#define PB_CLUSTERS 0
#endif

namespace pb {

#if !PB_DEVICE
namespace host {
inline void check_cluster(const void* p, unsigned bytes, u32 rank, Site at) {
    check_access(p, bytes, "cluster access", at);
    if (rank != 0) fail(at, "block %u of a cluster of one", rank);
    if (!in_shared(p, bytes)) fail(at, "cluster access to %p, which is outside shared memory", p);
}
}  // namespace host
#endif

// The most blocks that every GPU with clusters runs in one.
inline constexpr int kMaxCluster = 8;

// 0 .. cluster_size() - 1
PB_FN u32 cluster_rank() {
#if PB_CLUSTERS
    u32 r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
#else
    return 0;
#endif
}
PB_FN u32 cluster_size() {
#if PB_CLUSTERS
    u32 r;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
#else
    return 1;
#endif
}
// Which cluster of the grid this is.
PB_FN u32 cluster_id() {
#if PB_CLUSTERS
    u32 r;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(r));
    return r;
#else
    return blockIdx.x;
#endif
}

// Barrier in two halves: what a thread wrote before it arrived is seen by every thread of the cluster that has waited.
// All threads of all blocks come to both, in the same order.
PB_FN void cluster_arrive() {
#if PB_CLUSTERS
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
PB_FN void cluster_wait() {
#if PB_CLUSTERS
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#else
    __syncthreads();
#endif
}
PB_FN void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

#if PB_CLUSTERS
// The address, in the cluster's window, of what block `rank` has where this block has `own`.
PB_FN u32 cluster_address(const void* own, u32 rank) {
    u32 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank));
    return r;
}
#endif

// A word or two of block `rank`'s shared memory: what lies there where `own` lies here.
template <class T> PB_FN T cluster_ld(const T* own, u32 rank PB_AT) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "one or two words");
#if PB_CLUSTERS
    if constexpr (sizeof(T) == 4) {
        u32 r;
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(r) : "r"(cluster_address(own, rank)) : "memory");
        return bits_of<T>(r);
    } else {
        u64 r;
        asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(r) : "r"(cluster_address(own, rank)) : "memory");
        return bits_of<T>(r);
    }
#else
#if !PB_DEVICE
    host::check_cluster(own, sizeof(T), rank PB_PASS_AT);
#endif
    return *own;
#endif
}
template <class T> PB_FN void cluster_st(T* own, u32 rank, T v PB_AT) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "one or two words");
#if PB_CLUSTERS
    if constexpr (sizeof(T) == 4)
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(cluster_address(own, rank)), "r"(bits_of<u32>(v))
                     : "memory");
    else
        asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(cluster_address(own, rank)), "l"(bits_of<u64>(v))
                     : "memory");
#else
#if !PB_DEVICE
    host::check_cluster(own, sizeof(T), rank PB_PASS_AT);
#endif
    *own = v;
#endif
}

// Combines one value of each block in the order of the ranks; every thread of every block gets the result, bit for bit
// the same. All threads of a block bring the same `v`. `slots` is shared and holds kMaxCluster values; calls in a row
// take two arrays in turn, so that the barrier of one call guards the other.
template <class T, class F> PB_FN T cluster_reduce(T v, T* slots, F combine) {
    const u32 n = cluster_size();
    if (n == 1) return v;
    if (threadIdx.x < n) cluster_st(slots + cluster_rank(), threadIdx.x, v);
    cluster_sync();
    T r = slots[0];
#pragma unroll 1
    for (u32 i = 1; i < n; i++) r = combine(r, slots[i]);
    return r;
}

}  // namespace pb
