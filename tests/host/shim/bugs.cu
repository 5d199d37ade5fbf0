// One seeded bug per kernel; those named ok_* have none. run.py holds the host target to both.
#include "parbake/async.cuh"
#include "parbake/barrier.cuh"
#include "parbake/mma.cuh"
#include "parbake/vec.cuh"
#include "parbake/warp.cuh"

using namespace pb;
struct Params {
    float* out;
    const float* in;
    u32* word;
    int n;
};
#define K(name) PB_KERNEL(name, Params, 1024)

K(ok_rotate) {
    PB_SHARED_ARRAY(float, s, 256);
    s[threadIdx.x] = p.in[threadIdx.x];
    __syncthreads();
    p.out[threadIdx.x] = s[(threadIdx.x + 33) % 256];
}

K(missing_barrier_raw) {
    PB_SHARED_ARRAY(float, s, 256);
    s[threadIdx.x] = p.in[threadIdx.x];
    p.out[threadIdx.x] = s[(threadIdx.x + 33) % 256];
}

K(missing_barrier_war) {
    PB_SHARED_ARRAY(float, s, 256);
    float a = 0;
    for (int i = 0; i < 3; i++) {
        s[threadIdx.x] = p.in[threadIdx.x] + i;
        __syncthreads();
        a += s[(threadIdx.x + 33) % 256];
    }
    p.out[threadIdx.x] = a;
}

K(missing_syncwarp) {
    PB_SHARED_ARRAY(float, s, 256);
    s[threadIdx.x] = p.in[threadIdx.x];
    p.out[threadIdx.x] = s[threadIdx.x ^ 1];
}

K(shfl_is_no_fence) {
    PB_SHARED_ARRAY(float, s, 256);
    s[threadIdx.x] = p.in[threadIdx.x];
    float z = shfl_xor(0.f, 1);
    p.out[threadIdx.x] = z + s[threadIdx.x ^ 1];
}

K(divergent_barrier) {
    if (threadIdx.x < 64) __syncthreads();
    else {
        p.out[0] = 1;
        __syncthreads();
    }
}

K(barrier_skipped_by_some) {
    if (threadIdx.x % 32 < 16) __syncthreads();
    u32 b = warp_ballot(true);
    p.out[threadIdx.x] = (float)b;
}

K(shfl_divergent) {
    float v = p.in[threadIdx.x];
    if (lane_id() < 16) v += shfl_xor(v, 1);
    p.out[threadIdx.x] = v;
}

K(shfl_after_exit) {
    if (lane_id() >= 24) return;
    p.out[threadIdx.x] = shfl_xor(p.in[threadIdx.x], 1);
}

K(shfl_outside_mask) {
    if (lane_id() < 16) p.out[threadIdx.x] = shfl_xor(p.in[threadIdx.x], 16, 0xffffu);
}

K(mma_divergent) {
    float d[4] = {};
    u32 a[4] = {};
    if (lane_id() != 5) mma_16816<bf16>(d, a, 0, 0);
    p.out[threadIdx.x] = d[0];
}

K(uninit_smem) {
    PB_SHARED_ARRAY(float, s, 256);
    if (threadIdx.x < 255) s[threadIdx.x] = 1;
    __syncthreads();
    p.out[threadIdx.x] = s[255 - threadIdx.x];
}

K(smem_write_past_end) {
    PB_DYN_SMEM(m);
    ((float*)m)[threadIdx.x + 1] = 1;
    __syncthreads();
    p.out[threadIdx.x] = 0;
}

K(smem_read_past_end) {
    PB_DYN_SMEM(m);
    float* f = (float*)m;
    f[threadIdx.x] = 1;
    __syncthreads();
    float v = f[threadIdx.x + 1];
    p.out[threadIdx.x] = v == v ? v : 1;
}

K(static_smem_past_end) {
    PB_SHARED_ARRAY(float, s, 200);
    float* q = s;
    if (threadIdx.x <= 200) q[threadIdx.x] = 1;
    __syncthreads();
    p.out[threadIdx.x] = 0;
}

K(global_read_past_end) {
    p.out[threadIdx.x] = p.in[threadIdx.x + 1] > 1e30f ? 1 : 0;
}

K(global_write_past_end) {
    p.out[threadIdx.x + 1] = 0;
}

K(cp_async_no_wait) {
    PB_DYN_SMEM(m);
    if (threadIdx.x < 64) {
        cp_async16(shared(m + 16 * threadIdx.x), p.in + 4 * threadIdx.x);
    }
    cp_async_commit();
    __syncthreads();
    p.out[threadIdx.x] = ((float*)m)[threadIdx.x];
    __syncthreads();
    cp_async_wait<0>();
}

K(cp_async_wait_too_few) {
    PB_DYN_SMEM(m);
    if (threadIdx.x < 64) {
        cp_async16(shared(m + 16 * threadIdx.x), p.in + 4 * threadIdx.x);
    }
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    p.out[threadIdx.x] = ((float*)m)[threadIdx.x];
    __syncthreads();
    cp_async_wait<0>();
}

K(cp_async_no_barrier) {
    PB_DYN_SMEM(m);
    if (threadIdx.x < 64) {
        cp_async16(shared(m + 16 * threadIdx.x), p.in + 4 * threadIdx.x);
    }
    cp_async_commit();
    cp_async_wait<0>();
    p.out[threadIdx.x] = ((float*)m)[threadIdx.x];
}

K(cp_async_in_flight_at_exit) {
    PB_DYN_SMEM(m);
    if (threadIdx.x < 64) {
        cp_async16(shared(m + 16 * threadIdx.x), p.in + 4 * threadIdx.x);
    }
    cp_async_commit();
    p.out[threadIdx.x] = p.in[threadIdx.x];
}

K(cp_async_misaligned) {
    PB_DYN_SMEM(m);
    if (threadIdx.x < 8) cp_async16(shared(m + 16 * threadIdx.x), p.in + 2 * threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    p.out[threadIdx.x] = 0;
}

K(ld16_misaligned) {
    if (threadIdx.x < 8) p.out[threadIdx.x] = (float)ld<16>(p.in + threadIdx.x).w[0];
}

K(ldmatrix_outside) {
    u32 r[4];
    ldmatrix_x4<false>(r, shared((void*)p.in));
    p.out[threadIdx.x] = (float)r[0];
}

K(named_barrier_wrong_count) {
    if (threadIdx.x < 128) bar_sync(1, 160);
    else bar_sync(2, 128);
    p.out[threadIdx.x] = 0;
}

K(producer_never_arrives) {
    if (threadIdx.x < 128) bar_sync(1, 256);
    p.out[threadIdx.x] = 0;
}

K(ok_producer_consumer) {
    PB_SHARED_ARRAY(float, s, 128);
    if (threadIdx.x < 128) {
        s[threadIdx.x] = p.in[threadIdx.x];
        bar_arrive(1, 256);
    } else {
        bar_sync(1, 256);
        p.out[threadIdx.x] = s[255 - threadIdx.x];
    }
}

K(blocks_write_same_cell) {
    if (threadIdx.x < 8) p.out[threadIdx.x] = (float)blockIdx.x;
}

K(counter_not_atomic) {
    u32 v = p.word[0];
    p.out[threadIdx.x] = 0;
    p.word[0] = v + 1;
    __syncthreads();
    if (threadIdx.x == 0) p.out[0] = (float)p.word[0];
}

K(flag_without_release) {
    if (blockIdx.x == 0) {
        p.out[threadIdx.x] = 7;
        __syncthreads();
        if (threadIdx.x == 0) __atomic_store_n(p.word, 1u, __ATOMIC_RELAXED);
    } else {
        if (threadIdx.x == 0)
            while (!ld_acquire(p.word)) {
            }
        __syncthreads();
        p.out[256 + threadIdx.x] = p.out[threadIdx.x];
    }
}

K(ok_last_block_reduces) {
    PB_SHARED_ARRAY(u32, last, 1);
    p.out[blockIdx.x * 256 + threadIdx.x] = p.in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) last[0] = ticket(p.word) == gridDim.x - 1;
    __syncthreads();
    if (last[0]) {
        float a = 0;
        for (u32 b = 0; b < gridDim.x; b++) a += p.out[b * 256 + threadIdx.x];
        p.out[threadIdx.x] = a;
    }
}

K(last_block_without_barrier) {
    PB_SHARED_ARRAY(u32, last, 1);
    p.out[blockIdx.x * 256 + threadIdx.x] = p.in[threadIdx.x];
    if (threadIdx.x == 0) last[0] = ticket(p.word) == gridDim.x - 1;
    __syncthreads();
    if (last[0]) {
        float a = 0;
        for (u32 b = 0; b < gridDim.x; b++) a += p.out[b * 256 + threadIdx.x];
        p.out[threadIdx.x] = a;
    }
}

K(ok_grid_sync) {
    u32 n = 0;
    p.out[blockIdx.x * 256 + threadIdx.x] = p.in[threadIdx.x] + blockIdx.x;
    grid_sync(p.word, n);
    const float v = p.out[(blockIdx.x ^ 1) * 256 + threadIdx.x];
    grid_sync(p.word, n);
    p.out[blockIdx.x * 256 + threadIdx.x] = v;
}

K(grid_sync_missing) {
    u32 n = 0;
    p.out[blockIdx.x * 256 + threadIdx.x] = p.in[threadIdx.x] + blockIdx.x;
    grid_sync(p.word, n);
    const float v = p.out[(blockIdx.x ^ 1) * 256 + threadIdx.x];
    p.out[blockIdx.x * 256 + threadIdx.x] = v;
}

K(spin_on_absent_block) {
    if (blockIdx.x == 0)
        while (!ld_acquire(p.word)) {
        }
    else st_release(p.word, 1);
}

K(index_overflow_32) {
    int stride = 1 << 20, row = 3000 + (int)threadIdx.x;
    i64 at = row * stride;
    p.out[threadIdx.x] = at < 0 ? 1.f : 0.f;
}

K(register_array_bounds) {
    float r[4] = {1, 2, 3, 4};
    float a = 0;
    for (int i = 0; i < p.n; i++) a += r[i];
    p.out[threadIdx.x] = a * 0;
}

K(stack_overflow) {
    volatile float big[40000];
    for (int i = 0; i < 40000; i++) big[i] = 1;
    p.out[threadIdx.x] = big[7] - 1;
}

K(ok_half_warps) {
    float v = p.in[threadIdx.x];
    if (lane_id() < 16) v += shfl_xor(v, 1, 0xffffu);
    else v += shfl_xor(v, 2, 0xffff0000u);
    __syncwarp();
    p.out[threadIdx.x] = v + shfl_xor(v, 16);
}

K(ok_warps_exit_before_barrier) {
    PB_SHARED_ARRAY(float, s, 128);
    if (threadIdx.x >= 128) {
        p.out[threadIdx.x] = 0;
        return;
    }
    s[threadIdx.x] = p.in[threadIdx.x];
    __syncthreads();
    p.out[threadIdx.x] = s[127 - threadIdx.x];
}

K(ok_pipeline) {
    PB_SHARED_ARRAY(float, s, 256);
    float a = 0;  // barrier 1: full, 2: empty
    if (threadIdx.x < 128)
        for (int i = 0; i < 6; i++) {
            if (i >= 2) bar_sync(3 + (i & 1), 256);
            s[(i & 1) * 128 + threadIdx.x] = (float)(i * 1000) + p.in[threadIdx.x];
            bar_arrive(1 + (i & 1), 256);
        }
    else
        for (int i = 0; i < 6; i++) {
            bar_sync(1 + (i & 1), 256);
            a += s[(i & 1) * 128 + 255 - threadIdx.x];
            if (i < 4) bar_arrive(3 + (i & 1), 256);
        }
    p.out[threadIdx.x] = a;
}

K(pipeline_without_empty_barrier) {
    PB_SHARED_ARRAY(float, s, 256);
    float a = 0;
    if (threadIdx.x < 128)
        for (int i = 0; i < 6; i++) {
            s[(i & 1) * 128 + threadIdx.x] = (float)(i * 1000) + p.in[threadIdx.x];
            bar_arrive(1 + (i & 1), 256);
            if (i & 1) bar_sync(5, 128);
        }
    else
        for (int i = 0; i < 6; i++) {
            bar_sync(1 + (i & 1), 256);
            a += s[(i & 1) * 128 + 255 - threadIdx.x];
        }
    p.out[threadIdx.x] = a;
}
