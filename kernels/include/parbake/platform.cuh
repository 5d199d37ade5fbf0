// Where the code runs: on a GPU (read by NVRTC or nvcc) or on the host target (read by a C++20 compiler).
// Kernels use what these headers declare, and threadIdx, blockIdx, blockDim, gridDim, __syncthreads(), __syncwarp().
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

#define PB_DEVICE 1
#define PB_FN __device__ __forceinline__
// The one kernel of a unit. The variadic part is the list of __launch_bounds__: threads, then blocks per
// multiprocessor.
#define PB_KERNEL(name, P, ...) \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ P p)
#define PB_DYN_SMEM(name) extern __shared__ __align__(1024) unsigned char name[]
#define PB_SHARED_ARRAY(T, name, n) __shared__ T name[n]
// Where a collective is called from, for the host target's diagnostics: a last parameter, and the argument that passes
// it on. Both are empty on a GPU.
#define PB_AT
#define PB_PASS_AT

#else

#define PB_DEVICE 0
#include "host/pb_host.h"

#endif
